package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/brig-run/brig"
)

// maxReported is the maximum number of findings in an error.
const maxReported = 10

// CheckPolicy returns nil for code that the rules allow, and otherwise an error of
// kind PolicyBlocked with the findings. The caller passes TypeScript in the form of
// the compiled JavaScript.
func (c *Screener) CheckPolicy(ctx context.Context, s *brig.Screening, lang brig.Language, source string) error {
	rules, ok := s.Rules[lang]
	if !ok && s.Others {
		return nil
	}
	if !ok {
		return policyError("%s is not screened, and may not run here", clip(string(lang))).
			WithHint("use python, javascript or typescript, or have the operator set screening.others")
	}
	found, err := c.Check(ctx, lang, []byte(source), rules)
	switch {
	case errors.Is(err, ErrTooLarge):
		return policyError("Code is unsafe: %v", ErrTooLarge).WithHint("give less code; put data into files")
	case err != nil:
		return err
	case len(found) == 0:
		return nil
	}
	return policyError("Code is unsafe. %s", Summary(found)).
		WithHint("remove it; the operator defines what screening forbids")
}

func policyError(format string, args ...any) *brig.Error {
	e := brig.Errorf(brig.PolicyBlocked, format, args...)
	e.Field = "code"
	return e
}

// Summary returns the findings in one line.
func Summary(found []Finding) string {
	var b strings.Builder
	for i, f := range found {
		if i == maxReported {
			fmt.Fprintf(&b, "; and %d more", len(found)-maxReported)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.String())
	}
	return b.String()
}
