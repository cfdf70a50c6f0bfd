package engine

import (
	"context"

	"github.com/brig-run/brig"
)

// screenProgram asks whether a job's code may run. TypeScript has been
// compiled by then.
func (e *Engine) screenProgram(ctx context.Context, v *visit, j *job) error {
	if !e.screens(v) || j.lang == nil {
		return nil
	}
	return e.screenSource(ctx, v, j.lang.Name, j.order.Code)
}

// screens reports whether code of a caller's is screened at all.
func (e *Engine) screens(v *visit) bool {
	return e.Options.Screen != nil || v.ceilings.Screening != nil
}

// screenSource asks whether a source may run: everybody's rules first, then
// the tenant's own, which can only refuse more.
func (e *Engine) screenSource(ctx context.Context, v *visit, lang brig.Language, source string) error {
	if lang == brig.TypeScript {
		lang = brig.JavaScript
	}
	if e.Options.Screen != nil {
		if err := e.Options.Screen(ctx, lang, source); err != nil {
			return err
		}
	}
	switch own := v.ceilings.Screening; {
	case own == nil:
		return nil
	case e.ScreenBy == nil: // they were given to a server that could
		return brig.Errorf(brig.PolicyBlocked, "this server cannot screen code by the tenant's rules").
			WithHint("ask the operator to take them back, or to have a server that can")
	default:
		return e.ScreenBy(ctx, own, lang, source)
	}
}

// screenCell asks whether code may run in a context, before the context is
// made. TypeScript is compiled for that; what cannot be is not run either.
func (e *Engine) screenCell(ctx context.Context, v *visit, code brig.Code) error {
	if !e.screens(v) {
		return nil
	}
	lang := code.Language
	if code.Context != "" {
		c, err := e.context(v.rec.ID, code.Context)
		if err != nil {
			return err
		}
		lang = c.told.Spec.Language
	}
	source, wrong, err := e.compileCell(ctx, lang, code.Source)
	if wrong != nil || err != nil {
		return err
	}
	return e.screenSource(ctx, v, lang, source)
}
