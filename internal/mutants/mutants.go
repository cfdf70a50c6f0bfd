// Package mutants injects small faults into code, to determine which tests
// detect them. The program gremlins lists the possible changes; this package
// selects some of them, applies them, and records the results.
package mutants

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one change of one file.
type Mutant struct {
	File   string `json:"file"` // relative to the root, with slashes
	Line   int    `json:"line"`
	Column int    `json:"column"` // in bytes, from 1
	Source string `json:"source"` // the line
	From   string `json:"from"`
	To     string `json:"to"`
	// Killed is the first stage that detects the change; empty if none has yet.
	Killed Stage `json:"killed,omitempty"`
	// By is the test that detected the change.
	By string `json:"by,omitempty"`
	// Survived is the last stage that did not detect the change.
	Survived Stage `json:"survived,omitempty"`
	// Why is a developer's explanation of why no test, or only a long test, needs to detect the
	// change.
	Why string `json:"why,omitempty"`
}

// Stage is a set of tests.
type Stage string

// These are the stages, cheapest first. Invalid marks a change that does not compile, which
// does not count.
const (
	Invalid  Stage = "does not compile"
	Packages Stage = "packages"
	Small    Stage = "make test"
	Full     Stage = "make test-all"
)

// changes maps each mutation type of gremlins to its token replacements.
var changes = map[string]map[string]string{
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_LOGICAL":        {"&&": "||", "||": "&&"},
	"INVERT_LOOPCTRL":       {"break": "continue", "continue": "break"},
	"INVERT_NEGATIVES":      {"-": "+"},
}

// Parse reads the mutations that gremlins lists for a directory.
func Parse(list []byte, root, dir string) ([]Mutant, error) {
	var in struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type         string `json:"type"`
				Line, Column int
			} `json:"mutations"`
		} `json:"files"`
	}
	if err := json.Unmarshal(list, &in); err != nil {
		return nil, err
	}
	var out []Mutant
	for _, f := range in.Files {
		file := path.Join(dir, f.Name)
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		for _, m := range f.Mutations {
			position, err := offset(src, m.Line, m.Column)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			x := Mutant{File: file, Line: m.Line, Column: m.Column, Source: line(src, m.Line)}
			// Use the longest matching token: "<=" before "<".
			for from, to := range changes[m.Type] {
				if bytes.HasPrefix(src[position:], []byte(from)) && len(from) > len(x.From) {
					x.From, x.To = from, to
				}
			}
			// Two types of gremlins can make the same change.
			if x.From != "" && !slices.Contains(out, x) {
				out = append(out, x)
			}
		}
	}
	slices.SortFunc(out, compare)
	return out, nil
}

func compare(a, b Mutant) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.To, b.To))
}

// Same reports whether two mutants make the same change to the same line of
// code, regardless of its position in the file.
func (m *Mutant) Same(o *Mutant) bool {
	return m.File == o.File && m.Source == o.Source && m.Column == o.Column && m.From == o.From && m.To == o.To
}

// String returns the position and the change.
func (m *Mutant) String() string {
	return fmt.Sprintf("%s:%d:%d %s becomes %s", m.File, m.Line, m.Column, m.From, m.To)
}

// line returns the text of a line.
func line(src []byte, n int) string {
	lines := strings.Split(string(src), "\n")
	if n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// offset returns the byte offset of a line and a column in a source.
func offset(src []byte, line, column int) (int, error) {
	position := 0
	for range line - 1 {
		i := bytes.IndexByte(src[position:], '\n')
		if i < 0 {
			return 0, fmt.Errorf("there is no line %d", line)
		}
		position += i + 1
	}
	if position += column - 1; position >= len(src) {
		return 0, fmt.Errorf("there is no column %d in line %d", column, line)
	}
	return position, nil
}

// Sample selects n mutants, deterministically for a seed. Changes elsewhere in
// the code have little effect on the selection.
func Sample(all []Mutant, n int, seed uint64) []Mutant {
	out := slices.Clone(all)
	order := func(m Mutant) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d %s", seed, m.File, m.Source, m.Column, m.To))
		return string(sum[:])
	}
	slices.SortStableFunc(out, func(a, b Mutant) int { return cmp.Compare(order(a), order(b)) })
	out = out[:min(n, len(out))]
	slices.SortFunc(out, compare)
	return out
}

// apply applies several mutants to the source of one file.
func apply(src []byte, list []Mutant) ([]byte, error) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Mutant) int { return compare(b, a) })
	original := src
	for _, m := range list {
		position, err := offset(src, m.Line, m.Column)
		if err != nil {
			return nil, err
		}
		if line(original, m.Line) != m.Source || !bytes.HasPrefix(src[position:], []byte(m.From)) {
			return nil, fmt.Errorf("%s: the source has changed: the line is no longer %q", m.String(), m.Source)
		}
		src = slices.Concat(src[:position], []byte(m.To), src[position+len(m.From):])
	}
	return src, nil
}

// Applies reports whether the source still contains the line that a mutant
// changes.
func (m *Mutant) Applies(root string) bool {
	src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err == nil {
		_, err = apply(src, []Mutant{*m})
	}
	return err == nil
}

// Overlay writes changed files to a directory, together with a file for the
// -overlay option of the go command. It returns the name of that file.
func Overlay(root, dir string, list []Mutant) (string, error) {
	byFile := map[string][]Mutant{}
	for _, m := range list {
		byFile[m.File] = append(byFile[m.File], m)
	}
	replace := map[string]string{}
	for file, of := range byFile {
		name := filepath.Join(root, filepath.FromSlash(file))
		src, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if src, err = apply(src, of); err != nil {
			return "", err
		}
		replace[name] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[name], src, 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
