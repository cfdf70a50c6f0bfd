package image

import (
	"fmt"
	"path"
	"strings"
)

// These are the limits of an entry's name.
const (
	maxPath  = 4095
	maxName  = 255
	maxDepth = 128
)

// cleanName returns the name of an entry relative to the root, "." for the root itself. It rejects
// a name with ".." instead of cleaning it: valid archives contain no such names, and their meaning
// depends on links that are not followed.
func cleanName(name string) (string, error) {
	switch {
	case strings.Contains(name, "\x00"):
		return "", archiveError("entry %s: there is a NUL in its name", quote(name))
	case len(name) > maxPath:
		return "", archiveError("entry %s: its name is longer than %d bytes", quote(name), maxPath)
	}
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", archiveError("entry %s: there is a \"..\" in its name", quote(name))
		}
		if len(part) > maxName {
			return "", archiveError("entry %s: a part of its name is longer than %d bytes", quote(name), maxName)
		}
	}
	if clean == "" {
		return ".", nil
	}
	if strings.Count(clean, "/") >= maxDepth {
		return "", archiveError("entry %s: it is more than %d directories deep", quote(name), maxDepth)
	}
	return clean, nil
}

// quote formats an untrusted name: short, and without characters that a
// terminal or a log would interpret.
func quote(name string) string {
	return fmt.Sprintf("%.120q", name)
}
