package workspace

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// change is the difference at one path. before is nil for an added path, and
// after for a removed one.
type change struct {
	path          string
	before, after *entry
}

// diff lists the paths at which two manifests differ, sorted.
func diff(from, to manifest) []change {
	var out []change
	for p, e := range from {
		if t := to[p]; t == nil || !e.isEqualContent(t) {
			out = append(out, change{p, e, t})
		}
	}
	for p, t := range to {
		if from[p] == nil {
			out = append(out, change{p, nil, t})
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return out
}

// toChanges converts up to most changes to the API's form.
func toChanges(list []change, limit int) []brig.WorkspaceChange {
	out := []brig.WorkspaceChange{}
	for _, c := range list[:min(len(list), limit)] {
		w := brig.WorkspaceChange{Path: EscapePath(c.path), Kind: brig.WorkspaceChanged}
		switch {
		case c.before == nil:
			w.Kind = brig.WorkspaceAdded
		case c.after == nil:
			w.Kind, w.Type = brig.WorkspaceRemoved, c.before.Type
		}
		if c.after != nil {
			w.Type, w.Size = c.after.Type, c.after.Size
		}
		out = append(out, w)
	}
	return out
}

// EscapePath returns a path as shown to callers: invalid UTF-8, control
// characters and backslashes are escaped.
func EscapePath(p string) string {
	var b strings.Builder
	for i, r := range p {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(p[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, p[i])
		case r < ' ', r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// policy lists the path prefixes that a commit may change.
type policy []string

// allows reports whether a change is allowed. Parent directories of a prefix
// may be created, but not changed otherwise.
func (p policy) allows(c change) bool {
	if len(p) == 0 {
		return true
	}
	for _, prefix := range p {
		if c.path == prefix || strings.HasPrefix(c.path, prefix+"/") {
			return true
		}
		if strings.HasPrefix(prefix, c.path+"/") && c.before == nil && c.after.Type == brig.Directory {
			return true
		}
	}
	return false
}

// canAllow reports whether the policy may allow some change at a path.
func (p policy) canAllow(filePath string) bool {
	return p.allows(change{path: filePath, after: &entry{Node: brig.Node{Type: brig.Directory}}})
}

// CheckPrefixes validates and cleans the path prefixes that a commit may
// change.
func CheckPrefixes(list []string) ([]string, error) {
	if len(list) > brig.MaxWorkspacePrefix {
		return nil, brig.InvalidField("workspace.prefixes", "%d are too many", len(list)).WithHint("give at most %d", brig.MaxWorkspacePrefix)
	}
	var out []string
	for i, p := range list {
		clean := path.Clean(strings.TrimPrefix(p, "/workspace/"))
		if p == "" || !isLocalPath(clean) || strings.Contains("/"+p+"/", "/../") || !utf8.ValidString(p) {
			return nil, brig.InvalidField(fmt.Sprintf("workspace.prefixes[%d]", i), "%q is no path in a workspace", EscapePath(p[:min(len(p), 100)])).
				WithHint("give paths relative to /workspace, for example outputs")
		}
		out = append(out, clean)
	}
	return out, nil
}

// merge applies changes since base to head, which may contain other changes.
// If both sides have changed a path differently, merge returns that path as
// the conflict.
func merge(base, head manifest, mine []change) (merged manifest, conflict string) {
	merged = manifest{}
	for p, e := range head {
		merged[p] = e
	}
	for _, c := range mine {
		was, current := base[c.path], head[c.path]
		moved := (was == nil) != (current == nil) || was != nil && !was.isEqualContent(current)
		agree := c.after == nil && current == nil || c.after != nil && current != nil && c.after.isEqualContent(current)
		if moved && !agree {
			return nil, c.path
		}
		if c.after == nil {
			delete(merged, c.path)
		} else {
			merged[c.path] = c.after
		}
	}
	for p := range merged {
		if above := path.Dir(p); above != "." && (merged[above] == nil || merged[above].Type != brig.Directory) {
			return nil, p // another commit removed the parent, or replaced it by a file
		}
	}
	return merged, ""
}
