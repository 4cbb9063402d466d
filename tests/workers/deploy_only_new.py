"""A build without the old version."""

from tests.workers.deploy_new import checkout_2
from tests.workers.deploy_old import charge, reserve

code = (charge, checkout_2, reserve)
