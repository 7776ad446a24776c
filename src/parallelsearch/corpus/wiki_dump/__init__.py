"""MediaWiki's XML dumps -> articles -> plain text -> passages of 100 words."""
