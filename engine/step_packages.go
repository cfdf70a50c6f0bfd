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

// packagesTimeout is how long a step waits for its packages. The lease of its sandbox is longer.
const packagesTimeout = installTimeout + time.Minute

// restorePackages puts the packages that earlier steps requested into a step's sandbox, before any
// program runs in it. pip installs them by name in a separate sandbox. They are not copied from an
// earlier step's disk, which an untrusted program could have written. If the packages cannot be
// installed, the step still runs, because it may not need them, and receives the reason.
func (rs *runs) restorePackages(ctx context.Context, v *call, m *machine, j *job) error {
	j.request.Packages, j.request.Uncarried = nil, "" // an attempt with another provider may have set them
	if len(j.packages) == 0 {
		return nil
	}
	reason, err := rs.installLayers(ctx, v, m, j)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		if errors.Is(err, context.DeadlineExceeded) {
			err = brig.Errorf(brig.Timeout, "the installation did not end within %v", packagesTimeout).Because(err)
		}
		rs.Log.WarnContext(ctx, "failed to install the packages of a step", "sandbox", m.rec.ID, "err", err)
		reason = brig.AsError(err).Message
	}
	if reason != "" {
		j.request.Uncarried = brig.Clip(reason, 2000)
		return nil
	}
	j.request.Packages = []string{layerPath(0)}
	return nil
}

// installLayers installs the packages for restorePackages, and returns the
// reason for a failure.
func (rs *runs) installLayers(ctx context.Context, v *call, m *machine, j *job) (reason string, err error) {
	l := tool.Layer{Language: brig.Python, Packages: j.packages}
	// The sandbox for the installation must not appear in the call's audit event.
	layerCall := &call{e: rs.gate, callAudit: v.nestedAudit(), arrived: time.Now(), account: v.account, limitRange: v.limitRange, tenantLimits: v.tenantLimits}
	in := builder{Spec: brig.Spec{Image: j.spec.Image, Limits: j.spec.Limits}, image: m.rec.Digest}
	digest := l.Digest(v.account.layers(m.rec.Digest))
	if reason = rs.tools.boxes.negativeCache.reason(digest, rs.Now()); reason != "" {
		return reason, nil
	}
	wait, cancel := context.WithTimeout(ctx, packagesTimeout)
	defer cancel()
	content, reason, err := rs.tools.getLayer(wait, layerCall, l, in, digest)
	if reason != "" {
		rs.tools.boxes.negativeCache.add(digest, reason, rs.Now())
	}
	if reason != "" || err != nil {
		return reason, err
	}
	err = m.in.Unpack(ctx, layerPath(0), brig.UnpackOptions{User: "root", Sealed: true}, func(put func(brig.Node, io.Reader) error) error {
		return content.Each(func(n brig.Node, r io.Reader) error {
			if runsAtStart(n.Path) {
				return nil
			}
			return put(n, r)
		})
	})
	_ = content.Close() // it was opened for reading
	return "", err
}

// runsAtStart reports whether a file of a layer belongs to a module that the
// interpreter runs at every start.
func runsAtStart(path string) bool {
	name, _, _ := strings.Cut(path, "/")
	name, _, _ = strings.Cut(name, ".")
	return name == "sitecustomize" || name == "usercustomize"
}
