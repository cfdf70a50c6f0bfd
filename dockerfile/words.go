package dockerfile

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/brig-run/brig"
)

// words resolves quotes, escapes and references to variables in the words of a Dockerfile.
type words struct {
	lex    *shell.Lex
	known  map[string]string // the variables whose values do not depend on the image
	wasSet map[string]bool   // all variables that the Dockerfile has set
}

func newWords(escape rune) *words {
	w := &words{lex: shell.NewLex(escape)}
	w.reset()
	return w
}

// reset forgets all variables.
func (w *words) reset() { w.known, w.wasSet = map[string]string{}, map[string]bool{} }

// Marks around the name of a variable that the server resolves. No text of a Dockerfile contains them,
// because expand rejects it.
const (
	markBegin = "\x01"
	markEnd   = "\x02"
)

// markedName matches a reference that the server resolves.
var markedName = regexp.MustCompile(markBegin + "([A-Za-z0-9_]+)" + markEnd)

// withModifier matches a reference with a modifier, such as ${NAME:-default}.
var withModifier = regexp.MustCompile(`\$\{([A-Za-z0-9_]+)[^}A-Za-z0-9_]`)

// expand returns a word for a field of a step in which the server resolves references: those to variables
// of the image remain, as ${NAME}, and a dollar sign that is none has a backslash.
func (w *words) expand(word string) (string, error) {
	text, err := w.mark(word)
	if err != nil {
		return "", err
	}
	return markedName.ReplaceAllString(literal(text), "$${$1}"), nil
}

// literal escapes a text for a field in which the server resolves references.
func literal(text string) string { return strings.ReplaceAll(text, "$", `\$`) }

// resolved returns a word for a field in which the server resolves no references.
func (w *words) resolved(word string) (string, error) {
	text, err := w.mark(word)
	if err != nil {
		return "", err
	}
	if m := markedName.FindStringSubmatch(text); m != nil {
		return "", brig.Errorf(brig.InvalidArgument, "the value of %s is not known here", m[1]).WithHint("set it before, with ARG or ENV")
	}
	return text, nil
}

// mark resolves a word, and puts marks around the names of variables whose values are not known.
func (w *words) mark(word string) (string, error) {
	if strings.ContainsAny(word, "\x00"+markBegin+markEnd) {
		return "", brig.Errorf(brig.InvalidArgument, "it contains control characters")
	}
	look := lookup{w: w, optional: map[string]bool{}}
	for _, m := range withModifier.FindAllStringSubmatch(word, -1) {
		look.optional[m[1]] = true
	}
	text, _, err := w.lex.ProcessWord(word, look)
	if err != nil {
		return "", brig.Errorf(brig.InvalidArgument, "%s", err)
	}
	return text, nil
}

// lookup finds the values of variables for one word.
type lookup struct {
	w        *words
	optional map[string]bool // the variables with a modifier, which are unset if the Dockerfile does not set them
}

// Get implements shell.EnvGetter.
func (l lookup) Get(name string) (string, bool) {
	if value, ok := l.w.known[name]; ok {
		return value, true
	}
	if l.optional[name] && !l.w.wasSet[name] || strings.Trim(name, "0123456789") == "" {
		return "", false
	}
	return markBegin + name + markEnd, true
}

// Keys implements shell.EnvGetter.
func (l lookup) Keys() []string { return slices.Sorted(maps.Keys(l.w.known)) }

// hasReference reports whether a result of expand refers to a variable.
func hasReference(value string) bool {
	return strings.Contains(strings.ReplaceAll(value, `\$`, ""), "$")
}

// setExpanded sets a variable to a result of expand.
func (w *words) setExpanded(name, value string) {
	if w.wasSet[name] = true; hasReference(value) {
		delete(w.known, name) // it depends on the image
		return
	}
	w.known[name] = strings.ReplaceAll(value, `\$`, "$")
}
