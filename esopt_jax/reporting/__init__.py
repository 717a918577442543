"""Pictures of finished runs; reads run folders and is imported by the command line alone."""
