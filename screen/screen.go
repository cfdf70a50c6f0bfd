package screen

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// ErrLanguage means that the package has no grammar for a language.
var ErrLanguage = errors.New("the language cannot be screened")

// Screener checks sources. The zero value is ready to use. The first Check takes a
// third of a second longer, and permanently allocates about 30 MB. At most two
// checks run concurrently.
type Screener struct {
	// Timeout is the maximum duration of one check. Default: 5 s.
	Timeout time.Duration

	parser    parser
	foldTable foldTable
}

// Warm prepares the parser for the first Check.
func (c *Screener) Warm(ctx context.Context) error { return c.parser.prepare(ctx) }

// Check returns the findings in a source, in order. The caller passes TypeScript in
// the form of the compiled JavaScript, because this is the code that the
// interpreter runs. Check returns ErrLanguage for every language except Python and
// JavaScript, including TypeScript. It returns ErrTooLarge for a source that
// exceeds the limits. A source with a syntax error is checked as far as it can be
// parsed.
func (c *Screener) Check(ctx context.Context, lang brig.Language, source []byte, rules Rules) ([]Finding, error) {
	var s scan
	var l grammarID
	switch lang {
	case brig.Python:
		l, s.m, s.grammar = python, newMatcher(rules, pythonRoots()), pythonGrammar{&c.foldTable}
	case brig.JavaScript:
		l, s.m, s.grammar = javascript, newMatcher(rules, javascriptRoots()), javascriptGrammar{}
	default:
		return nil, ErrLanguage
	}
	if len(source) > maxSource {
		return nil, ErrTooLarge
	}
	if f, invalid := checkEncoding(l, source); invalid {
		return []Finding{f}, nil
	}
	release, err := c.parser.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	clock, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, checkTimeout))
	defer cancel()
	if s.tree, err = c.parser.parse(clock, l, normalizeLines(source)); err == nil {
		err = s.run(clock)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if l == python {
		s.findCommands()
	}
	// A Python source with a syntax error must not pass because its valid part has
	// no findings. If IPython commands are allowed, the syntax error may be such a
	// command.
	if rules.Only || l == python && !s.m.Commands && len(s.found) == 0 {
		s.findSyntaxError()
	}
	return sortFindings(s.found), nil
}

// findSyntaxError reports the first syntax error.
func (s *scan) findSyntaxError() {
	for i, n := range s.nodes {
		if n.invalid {
			s.find(int32(i), SyntaxRule, "", "the code cannot be parsed")
			return
		}
	}
}

// normalizeLines converts all line endings to line feeds, as interpreters do, and
// removes a byte order mark.
func normalizeLines(source []byte) []byte {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	if bytes.IndexByte(source, '\r') < 0 {
		return source
	}
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(source, []byte("\r"), []byte("\n"))
}

// checkEncoding returns a finding if an interpreter may decode the source
// differently from the parser.
func checkEncoding(l grammarID, source []byte) (Finding, bool) {
	f := Finding{Line: 1, Column: 1, Rule: EncodingRule}
	switch {
	case bytes.IndexByte(source, 0) >= 0:
		before := source[:bytes.IndexByte(source, 0)]
		f.Line += bytes.Count(before, []byte("\n"))
		f.Message = "there is a NUL"
	case !utf8.Valid(source):
		f.Message = "the code is not UTF-8"
	case l == python && hasForeignEncoding(source):
		f.Message = "a coding other than UTF-8 is declared"
	default:
		return f, false
	}
	return f, true
}

// hasForeignEncoding reports whether one of the first two lines declares
// an encoding other than UTF-8 or a subset of it.
func hasForeignEncoding(source []byte) bool {
	rest := string(normalizeLines(source[:min(len(source), 4096)]))
	for range 2 {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		comment, ok := strings.CutPrefix(strings.TrimLeft(line, " \t\f"), "#")
		if !ok && strings.Trim(line, " \t\f") != "" {
			return false
		}
		for ok {
			if _, comment, ok = strings.Cut(comment, "coding"); ok && comment != "" && strings.IndexByte(":=", comment[0]) >= 0 {
				name := strings.TrimLeft(comment[1:], " \t")
				if end := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune("-_.", r) && !isAlphanumeric(r) }); end >= 0 {
					name = name[:end]
				}
				name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
				return name != "" && name != "utf-8" && name != "utf8" && name != "ascii" && name != "us-ascii" && name != "utf-8-sig"
			}
		}
	}
	return false
}

func isAlphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
