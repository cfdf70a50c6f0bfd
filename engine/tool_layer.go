package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/tool"
)

const (
	// layersDir is the directory of packages in a box, with a subdirectory for
	// each layer. Root owns them, so that a tool cannot change the imports of
	// the next tool.
	layersDir = "/opt/brig-tools"
	// installTimeout limits the duration of the installation of a layer.
	installTimeout = 5 * time.Minute
	// layerTries is the maximum number of attempts to build a layer that the cache drops before its
	// use.
	layerTries = 3
	// builderTTL is the lease of a sandbox that installs packages.
	builderTTL = installTimeout + 2*time.Minute
)

// layerPath returns the path of a call's n-th layer in a box.
func layerPath(n int) string { return layersDir + "/" + strconv.Itoa(n) }

// installPackages installs the packages of a call in a new box. If it fails
// because of the packages, the ProgramError is the call's result.
func (ts *tools) installPackages(ctx context.Context, v *call, x *box, j *toolJob) (*brig.ProgramError, error) {
	if len(j.layers) == 0 {
		return nil, nil
	}
	rec, err := ts.Store.Get(ctx, x.tenant, string(x.id))
	if err != nil {
		return nil, err
	}
	in, releaseUse, err := ts.lifecycle.useInstanceFor(ctx, rec, installTimeout)
	if err != nil {
		return nil, err
	}
	defer releaseUse()
	for n, l := range j.layers {
		// Each tenant has its own layers, so that code that runs during an
		// installation cannot reach another tenant's tools.
		digest := l.Digest(v.account.layers(rec.Digest))
		content, msg, err := ts.getLayer(ctx, v, l.Layer, j.builder(ts), digest)
		if err != nil {
			return nil, err
		}
		if msg != "" {
			return packageInstallError(j, l, msg), nil
		}
		err = in.Unpack(ctx, layerPath(n), brig.UnpackOptions{User: "root", Sealed: true}, content.Each)
		_ = content.Close() // it was opened for reading
		if err != nil {
			return nil, ts.lifecycle.explainLoss(ctx, rec, in, fmt.Errorf("unpack packages: %w", err))
		}
	}
	// Set the label last: if the server dies earlier, the next server must not use a box that lacks
	// packages.
	_, err = ts.updateRecord(ctx, x.tenant, x.id, func(r *brig.Record) error {
		r.Spec.Labels[labelReady] = x.key
		return nil
	})
	return nil, err
}

// builder describes a sandbox that installs packages.
type builder struct {
	brig.Spec
	image string // the required digest of the sandbox's image; empty allows any
}

// builder returns the builder for the call's packages.
func (j *toolJob) builder(e *tools) builder {
	if j.setup.Template != "" {
		return builder{Spec: brig.Spec{Template: j.setup.Template}}
	}
	return builder{Spec: brig.Spec{Image: e.Options.Tools.Image}}
}

// layers returns a string that identifies the owner of layers and their image. It includes the
// tenant's creation time, because a former tenant of the same name had other layers.
func (a *account) layers(image string) string {
	t := a.Tenant()
	return t.Name + "\x00" + t.Created.UTC().Format(time.RFC3339Nano) + "\x00" + image
}

// getLayer returns a layer from the cache. A missing layer is built first, while concurrent calls
// wait. If it cannot be built, msg is the reason.
func (ts *tools) getLayer(ctx context.Context, v *call, l tool.Layer, in builder, digest string) (_ *tool.Content, msg string, err error) {
	layers := ts.Options.Tools.Layers
	if layers == nil {
		return nil, "packages are not installed here (the operator allows that with tools.packages)", nil
	}
	release, err := ts.boxes.layers.Lock(ctx, digest)
	if err != nil {
		return nil, "", err
	}
	defer release()
	for tries := 0; ; tries++ {
		content, err := layers.Open(digest)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || tries == layerTries {
			return content, "", err
		}
		if msg, err := ts.makeLayer(ctx, v, l, in, digest); msg != "" || err != nil {
			return nil, msg, err
		}
		// The cache may drop the layer immediately to make space for other layers.
	}
}

// makeLayer installs packages in a separate sandbox, and stores them in the cache. If the packages
// cause a failure, msg is the reason.
func (ts *tools) makeLayer(ctx context.Context, v *call, l tool.Layer, in builder, digest string) (msg string, err error) {
	layers := ts.Options.Tools.Layers
	in.Name, in.TTL = newName("tool-build-"), min(builderTTL, v.limitRange.MaxTTL)
	m, err := ts.makeToolSandbox(ctx, v, in.Spec, nil, ts.Options.Tools.PackageEgress)
	if err != nil {
		return "", err
	}
	defer ts.endBox(ctx, &box{id: m.rec.ID, tenant: m.rec.Tenant})
	if in.image != "" && m.rec.Digest != in.image {
		return "where packages are installed the image is another", nil
	}
	msg, ok, err := ts.installLayer(ctx, m, l)
	if err != nil {
		return "", ts.lifecycle.explainLoss(ctx, m.rec, m.in, err)
	}
	if !ok {
		return cmp.Or(msg, "it failed, and does not say why"), nil
	}
	err = layers.Put(digest, func(on func(brig.Node, io.Reader) error) error { return m.in.Pack(ctx, tool.LayerDir, on) })
	switch {
	case errors.Is(err, tool.ErrTooLarge):
		return "they take more than " + brig.FormatBytes(layers.MaxLayer), nil
	case errors.Is(err, fs.ErrNotExist):
		return "nothing was installed", nil
	}
	return "", err
}

// installLayer installs the packages of a layer. It returns the installer's
// output and whether the installation succeeded.
func (ts *tools) installLayer(ctx context.Context, m *machine, l tool.Layer) (msg string, ok bool, err error) {
	cmd := brig.Command{
		Argv: l.InstallCommand(ts.Options.Tools.Index), Timeout: min(installTimeout, time.Until(m.rec.Expires)), Dir: workspaceDir,
		Env: map[string]string{"HOME": workspaceDir, "PIP_CONFIG_FILE": "/dev/null"},
	}
	out := output.NewCapture(m.rec.Spec.Limits.Output)
	res, err := m.in.Exec(ctx, newExecID(), cmd, brig.IO{Stdout: out, Stderr: out})
	if err != nil && (res == nil || !res.Done) {
		return "", false, err
	}
	captured := out.Output()
	msg = strings.ToValidUTF8(strings.TrimSpace(string(captured.Head)+string(captured.Tail)), "\uFFFD")
	switch {
	case res.TimedOut:
		msg = fmt.Sprintf("it took longer than %v. %s", cmd.Timeout, msg)
	case res.OOMKilled:
		msg = "it used more memory than it may. " + msg
	}
	return msg, res.ExitCode == 0, nil
}

// packageInstallError returns the error for packages that could not be installed.
func packageInstallError(j *toolJob, l toolLayer, msg string) *brig.ProgramError {
	name := j.tool.Name
	if name == "" {
		name = tool.FindLastFunction(j.tool.Source)
	}
	return &brig.ProgramError{
		Name: "PackageError", Message: tool.InstallError(l.Installer(), l.Packages, name, l.fromTool, brig.Clip(msg, 2000)),
		Hint: "change the requirements",
	}
}
