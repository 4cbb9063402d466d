"""A build without the old version."""

from tests.workers.deploy_new import charge, checkout_2, reserve

code = (charge, checkout_2, reserve)
