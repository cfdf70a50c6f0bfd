package engine

import (
	"context"

	"github.com/brig-run/brig"
)

// screenProgram checks whether a job's code may run. TypeScript code is already
// compiled.
func (i *interpreters) screenProgram(ctx context.Context, v *call, j *job) error {
	if !i.isScreened(v) || j.lang == nil {
		return nil
	}
	return i.screenSource(ctx, v, j.lang.Name, j.request.Code)
}

// isScreened reports whether the caller's code is screened.
func (i *interpreters) isScreened(v *call) bool {
	return i.Options.Screen != nil || v.tenantLimits.Screening != nil
}

// screenSource checks source code against the server's rules, then against the
// tenant's rules, which can only reject more.
func (i *interpreters) screenSource(ctx context.Context, v *call, lang brig.Language, source string) error {
	if lang == brig.TypeScript {
		lang = brig.JavaScript
	}
	if i.Options.Screen != nil {
		if err := i.Options.Screen(ctx, lang, source); err != nil {
			return err
		}
	}
	switch own := v.tenantLimits.Screening; {
	case own == nil:
		return nil
	case i.ScreenTenant == nil: // another server accepted the rules
		return brig.Errorf(brig.PolicyBlocked, "this server cannot screen code by the tenant's rules").
			WithHint("ask the operator to take them back, or to have a server that can")
	default:
		return i.ScreenTenant(ctx, own, lang, source)
	}
}

// screenCell checks whether code may run in a context, before the context is created. It compiles
// TypeScript first. Code that does not compile is accepted, because it cannot run.
func (i *interpreters) screenCell(ctx context.Context, v *call, code brig.Code) error {
	if !i.isScreened(v) {
		return nil
	}
	lang := code.Language
	if code.Context != "" {
		c, err := i.findContext(v.rec, code.Context)
		if err != nil {
			return err
		}
		lang = c.info.Spec.Language
	}
	source, syntaxErr, err := i.compileCell(ctx, lang, code.Source)
	if syntaxErr != nil || err != nil {
		return err
	}
	return i.screenSource(ctx, v, lang, source)
}
