package engine

import (
	"context"

	"github.com/brig-run/brig"
)

// screenProgram asks whether a job's code may run. TypeScript has been
// compiled by then.
func (e *Engine) screenProgram(ctx context.Context, j *job) error {
	if e.Options.Screen == nil || j.lang == nil {
		return nil
	}
	lang := j.lang.Name
	if lang == brig.TypeScript {
		lang = brig.JavaScript
	}
	return e.Options.Screen(ctx, lang, j.order.Code)
}

// screenCell asks whether code may run in a context, before the context is
// made. TypeScript is compiled for that; what cannot be is not run either.
func (e *Engine) screenCell(ctx context.Context, rec *brig.Record, code brig.Code) error {
	if e.Options.Screen == nil {
		return nil
	}
	lang := code.Language
	if code.Context != "" {
		c, err := e.context(rec.ID, code.Context)
		if err != nil {
			return err
		}
		lang = c.told.Spec.Language
	}
	source, wrong, err := e.compileCell(ctx, lang, code.Source)
	if wrong != nil || err != nil {
		return err
	}
	if lang == brig.TypeScript {
		lang = brig.JavaScript
	}
	return e.Options.Screen(ctx, lang, source)
}
