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

// ErrLanguage is that there is no grammar for a language.
var ErrLanguage = errors.New("the language cannot be screened")

// A Screener checks sources. Its zero value is ready; the first Check takes a
// third of a second more, and some 30 MB that stay. Of checks that are asked for
// at the same time two go on.
type Screener struct {
	// Patience is how long one source may take, 5 s if it is 0.
	Patience time.Duration

	parser parser
	folds  folds
}

// Warm makes ready what the first Check would.
func (c *Screener) Warm(ctx context.Context) error { return c.parser.prepare(ctx) }

// Check finds what rules do not want in a source, in its order. TypeScript is
// to be checked as the JavaScript that is made of it, for that is what runs;
// it is ErrLanguage, as all but Python and JavaScript is. What is beyond the
// bounds is ErrTooLarge. A source with an error in it is checked as far as it
// can be read.
func (c *Screener) Check(ctx context.Context, lang brig.Language, source []byte, rules Rules) ([]Finding, error) {
	var s scan
	var l tongue
	switch lang {
	case brig.Python:
		l, s.m, s.grammar = python, newMatcher(rules, pythonRoots()), pythonGrammar{&c.folds}
	case brig.JavaScript:
		l, s.m, s.grammar = javascript, newMatcher(rules, javascriptRoots()), javascriptGrammar{}
	default:
		return nil, ErrLanguage
	}
	if len(source) > maxSource {
		return nil, ErrTooLarge
	}
	if f, wrong := encoding(l, source); wrong {
		return []Finding{f}, nil
	}
	leave, err := c.parser.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	clock, stop := context.WithTimeout(ctx, cmp.Or(c.Patience, checkTime))
	defer stop()
	if s.tree, err = c.parser.parse(clock, l, plainLines(source)); err == nil {
		err = s.run(clock)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if l == python {
		s.magics()
	}
	if rules.Only {
		s.syntax()
	}
	return order(s.found), nil
}

// syntax finds the first place that is not of the language.
func (s *scan) syntax() {
	for i, n := range s.nodes {
		if n.wrong {
			s.find(int32(i), SyntaxRule, "", "the code cannot be parsed")
			return
		}
	}
}

// plainLines ends all lines as interpreters do, with a line feed, and takes a
// byte order mark away.
func plainLines(source []byte) []byte {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	if bytes.IndexByte(source, '\r') < 0 {
		return source
	}
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(source, []byte("\r"), []byte("\n"))
}

// encoding finds bytes that an interpreter may take for something else than
// the grammar does.
func encoding(l tongue, source []byte) (Finding, bool) {
	f := Finding{Line: 1, Column: 1, Rule: EncodingRule}
	switch {
	case bytes.IndexByte(source, 0) >= 0:
		before := source[:bytes.IndexByte(source, 0)]
		f.Line += bytes.Count(before, []byte("\n"))
		f.Message = "there is a NUL"
	case !utf8.Valid(source):
		f.Message = "the code is not UTF-8"
	case l == python && foreign(source):
		f.Message = "a coding other than UTF-8 is declared"
	default:
		return f, false
	}
	return f, true
}

// foreign reports whether one of the first two lines declares a coding that
// is not UTF-8 nor in it.
func foreign(source []byte) bool {
	rest := string(plainLines(source[:min(len(source), 4096)]))
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
				if end := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune("-_.", r) && !alphanumeric(r) }); end >= 0 {
					name = name[:end]
				}
				name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
				return name != "" && name != "utf-8" && name != "utf8" && name != "ascii" && name != "us-ascii" && name != "utf-8-sig"
			}
		}
	}
	return false
}

func alphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
