"""Labs: experiments written down as files of commands, run, and shown on one page."""
