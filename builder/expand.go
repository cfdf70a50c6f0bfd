package builder

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// expand replaces the references to variables in a text, $NAME and ${NAME}, as a Dockerfile does. A
// backslash before a dollar sign keeps it, and so does any other character than that of a name after
// it. The values are those of earlier ENV steps, or else those of a login shell in the sandbox.
func (r *activeRun) expand(ctx context.Context, text string) (string, error) {
	known := map[string]string{}
	return expandText(text, func(name string) (string, error) {
		if value, ok := r.state.env[name]; ok {
			return value, nil
		}
		if value, ok := known[name]; ok {
			return value, nil
		}
		if len(known) == maxReferences {
			return "", failf("a value refers to more than %d variables of the sandbox", maxReferences)
		}
		value, err := r.variable(ctx, name)
		known[name] = value
		return value, err
	})
}

// expandText is expand with a function that returns the value of a variable. The result is never longer
// than maxText.
func expandText(text string, value func(name string) (string, error)) (string, error) {
	var out strings.Builder
	for text != "" {
		before, after, found := strings.Cut(text, "$")
		kept, escaped := strings.CutSuffix(before, `\`)
		if !found || !escaped {
			kept = before
		}
		out.WriteString(kept)
		if !found {
			break
		}
		text = after
		if escaped {
			out.WriteByte('$')
			continue
		}
		name, rest := cutVariable(after)
		if name == "" {
			out.WriteByte('$')
			continue
		}
		v, err := value(name)
		if err != nil {
			return "", err
		}
		out.WriteString(v)
		text = rest
		if out.Len() > maxText {
			return "", failf("the value is longer than %d bytes", maxText)
		}
	}
	return out.String(), nil
}

// cutVariable returns the name of the variable with which a text after a dollar sign begins, and the text
// after it. The name is empty if there is none.
func cutVariable(text string) (name, rest string) {
	braced := strings.HasPrefix(text, "{")
	body := strings.TrimPrefix(text, "{")
	n := 0
	for n < len(body) && n < maxVariableName && isNameByte(body[n], n == 0) {
		n++
	}
	if n == 0 || braced && !strings.HasPrefix(body[n:], "}") {
		return "", ""
	}
	rest = body[n:]
	if braced {
		rest = rest[1:]
	}
	return body[:n], rest
}

// maxVariableName is the maximum length of the name of a variable that a value refers to.
const maxVariableName = 200

func isNameByte(c byte, first bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || !first && '0' <= c && c <= '9'
}

// maxReferences is the maximum number of variables of the sandbox to which one value refers. Each takes a
// command.
const maxReferences = 20

// maxVariable is the maximum length of a value that is read from the sandbox.
const maxVariable = 8 * brig.KiB

// variable returns the value of a variable in a login shell of the current user.
func (r *activeRun) variable(ctx context.Context, name string) (string, error) {
	var out bytes.Buffer
	res, err := r.command(ctx, brig.Command{
		Argv: login(`printf %s "${` + name + `-}"`), Env: r.state.env, Dir: "/", User: r.state.user.run, Timeout: time.Minute,
	}, brig.IO{Stdout: &limitedBuffer{&out, maxVariable}})
	if err != nil || res.ExitCode != 0 {
		return "", err
	}
	return strings.ToValidUTF8(out.String(), "\uFFFD"), nil
}

// limitedBuffer drops what a guest writes beyond a number of bytes.
type limitedBuffer struct {
	to   *bytes.Buffer
	most int
}

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.to.Write(p[:min(len(p), max(0, l.most-l.to.Len()))])
	return len(p), nil
}
