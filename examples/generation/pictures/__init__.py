"""An application that sells pictures: orders in a transaction, painted by a provider, shown in a page."""
