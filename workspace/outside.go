package workspace

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// AddOutside adds a node from outside /workspace: a captured file or link, or
// a parent directory. The node's path is relative to the root.
func (c *Capture) AddOutside(ctx context.Context, n brig.Node, r io.Reader) error {
	filePath := "/" + n.Path
	switch {
	case n.Skipped != "":
		c.skip(filePath, n.Skipped)
		return nil
	case !isLocalPath(n.Path):
		return fmt.Errorf("a node of %.100q", n.Path)
	}
	if err := c.addNames(ctx, n); err != nil {
		return err
	}
	e := &entry{Node: n}
	if n.Type == brig.Directory {
		if len(c.outside) >= brig.MaxWorkspaceFiles {
			return limitError("directories outside /workspace", fmt.Sprint(brig.MaxWorkspaceFiles, " of them"))
		}
		c.outside[n.Path] = e
		return nil
	}
	if len(c.outside)-c.outside.directories() >= brig.MaxWorkspaceCaptured {
		c.skip(filePath, fmt.Sprintf("more than %d files are captured", brig.MaxWorkspaceCaptured))
		return nil
	}
	if n.Type == brig.RegularFile {
		remaining := int64(brig.MaxWorkspaceCapturedSize) - c.outsideBytes
		if n.Size > remaining {
			c.skip(filePath, "with it more than "+brig.FormatBytes(brig.MaxWorkspaceCapturedSize)+" are captured")
			return nil
		}
		// The size that a sandbox declares is not trusted.
		if err := c.storeFile(ctx, e, io.LimitReader(r, remaining+1), true); err != nil {
			return err
		}
		if e.Size > remaining {
			c.skip(filePath, "it is larger than it was said to be, and too large")
			return nil
		}
		c.outsideBytes += e.Size
	}
	c.outside[n.Path] = e
	return nil
}

// directories returns the number of directories.
func (m manifest) directories() int {
	n := 0
	for _, e := range m {
		if e.Type == brig.Directory {
			n++
		}
	}
	return n
}

// captured lists the captured files. It normalizes the directories in
// c.outside: it removes empty directories and adds missing parents.
func (c *Capture) captured() []brig.WorkspaceFile {
	needed := manifest{}
	for p, e := range c.outside {
		if e.Type == brig.Directory {
			continue
		}
		needed[p] = e
		for above := path.Dir(p); above != "."; above = path.Dir(above) {
			if d := c.outside[above]; d != nil && d.Type == brig.Directory {
				needed[above] = d
			} else {
				needed[above] = &entry{Node: brig.Node{Path: above, Type: brig.Directory, Mode: 0o755}}
			}
		}
	}
	if c.outside != nil {
		c.outside = needed
	}
	displayed := manifest{}
	for p, e := range needed {
		displayed[EscapePath("/"+p)] = e
	}
	return toFiles(displayed)
}

// toFiles converts files and links to the API's type. The manifest's keys are
// the paths shown to callers.
func toFiles(m manifest) []brig.WorkspaceFile {
	out := []brig.WorkspaceFile{}
	for _, p := range m.paths() {
		if e := m[p]; e.Type != brig.Directory {
			out = append(out, toFile(p, e))
		}
	}
	return out
}

// toFile converts an entry to the API's type. p is the path shown to
// callers.
func toFile(p string, e *entry) brig.WorkspaceFile {
	return brig.WorkspaceFile{Path: p, Type: e.Type, Mode: e.Mode, Size: e.Size, Target: EscapePath(e.Target)}
}

// mountPath is the path of a workspace in a sandbox.
const mountPath = "/workspace"

// uncapturable lists the places that cannot be captured.
var uncapturable = []string{mountPath, "/proc", "/sys", "/dev"}

// CheckCapture validates and cleans the paths outside /workspace at and below
// which a commit captures files.
func CheckCapture(list []string) ([]string, error) {
	if len(list) > brig.MaxWorkspacePrefix {
		return nil, brig.InvalidField("workspace.capture", "%d are too many", len(list)).WithHint("give at most %d", brig.MaxWorkspacePrefix)
	}
	var out []string
	for i, p := range list {
		clean := path.Clean(p)
		bad := !path.IsAbs(p) || clean == "/" || !isLocalPath(clean[1:]) || strings.Contains(p+"/", "/../") || !utf8.ValidString(p)
		for _, b := range uncapturable {
			bad = bad || clean == b || strings.HasPrefix(clean, b+"/")
		}
		if bad {
			return nil, brig.InvalidField(fmt.Sprintf("workspace.capture[%d]", i), "nothing can be captured at %q", EscapePath(p[:min(len(p), 100)])).
				WithHint("give absolute paths outside %s, for example /home/user or /etc/hosts", strings.Join(uncapturable, ", "))
		}
		out = append(out, clean)
	}
	return out, nil
}
