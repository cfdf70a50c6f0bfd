package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/tool"
)

// layTime is how long a step waits for its packages. Its machine lives longer.
const layTime = installTime + time.Minute

// carry puts the packages that the steps before have asked for into a step's
// machine, in which nothing has run yet. They are what pip makes of their names
// in a sandbox of their own, and not what a step had on its disk: an intruder
// there could have written it. That they are missing is no reason for a step not
// to run, which may not need them: it is told why.
func (e *Engine) carry(ctx context.Context, v *visit, m *machine, j *job) error {
	j.order.Packages, j.order.Uncarried = nil, "" // of an attempt elsewhere
	if len(j.packages) == 0 {
		return nil
	}
	said, err := e.layPackages(ctx, v, m, j)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		if errors.Is(err, context.DeadlineExceeded) {
			err = brig.Errorf(brig.Timeout, "they were not there within %v", layTime).Because(err)
		}
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
	errand := &visit{e: e, op: v.op, actor: v.actor, account: v.account, bounds: v.bounds, ceilings: v.ceilings, aside: true}
	in := builder{Spec: brig.Spec{Image: j.spec.Image, Limits: j.spec.Limits}, image: m.rec.Digest}
	digest := l.Digest(v.actor.Tenant + "\x00" + m.rec.Digest)
	if said = e.boxes.vain.of(digest, e.Now()); said != "" {
		return said, nil
	}
	wait, cancel := context.WithTimeout(ctx, layTime)
	defer cancel()
	content, said, err := e.layer(wait, errand, l, in, digest)
	if said != "" {
		e.boxes.vain.add(digest, said, e.Now())
	}
	if said != "" || err != nil {
		return said, err
	}
	err = m.in.Unpack(ctx, layerPath(0), brig.UnpackOptions{User: "root", Sealed: true}, func(put func(brig.Node, io.Reader) error) error {
		return content.Each(func(n brig.Node, r io.Reader) error {
			if startsItself(n.Path) {
				return nil
			}
			return put(n, r)
		})
	})
	_ = content.Close() // it was only read
	return "", err
}

// startsItself reports whether something in a layer is what an interpreter runs
// when it starts, whatever it is started for.
func startsItself(path string) bool {
	name, _, _ := strings.Cut(path, "/")
	name, _, _ = strings.Cut(name, ".")
	return name == "sitecustomize" || name == "usercustomize"
}
