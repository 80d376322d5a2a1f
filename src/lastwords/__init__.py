"""lastwords: why did my Python worker die?"""
