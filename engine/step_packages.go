package engine

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/tool"
)

// carry puts the packages that the steps before have asked for into a step's
// machine, in which nothing has run yet. They are what pip makes of their names
// in a sandbox of their own, and not what a step had on its disk: an intruder
// there could have written it. That they are missing is no reason for a step not
// to run, which may not need them: it is told why.
func (e *Engine) carry(ctx context.Context, v *visit, m *machine, j *job) error {
	if len(j.packages) == 0 {
		return nil
	}
	said, err := e.layPackages(ctx, v, m, j)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		e.Log.WarnContext(ctx, "packages of a step", "sandbox", m.rec.ID, "err", err)
		said = brig.AsError(err).Message
	}
	if said != "" {
		j.order.Uncarried = brig.Clip(said, 2000)
		return nil
	}
	j.order.Packages = []string{layerPath(0)}
	return nil
}

// layPackages is carry, and says why it could not.
func (e *Engine) layPackages(ctx context.Context, v *visit, m *machine, j *job) (said string, err error) {
	l := tool.Layer{Language: brig.Python, Packages: j.packages}
	// The sandbox that they are installed in is none that the call is about.
	errand := &visit{e: e, op: v.op, actor: v.actor, account: v.account, bounds: v.bounds, ceilings: v.ceilings}
	in := brig.Spec{Image: j.spec.Image, Limits: j.spec.Limits}
	content, said, err := e.layer(ctx, errand, l, in, l.Digest(v.actor.Tenant+"\x00"+m.rec.Digest))
	if said != "" || err != nil {
		return said, err
	}
	err = m.in.Unpack(ctx, layerPath(0), brig.UnpackOptions{User: "root", Sealed: true}, content.Each)
	_ = content.Close() // it was only read
	return "", err
}
