# Filled in below: the exported package.
