package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/failpoint"
)

// manifestVersion is the version of manifest and of the other files of a save.
const manifestVersion = 1

// filesVersion is the version of the manifest and the files of a save without memory.
// Servers that support only manifestVersion reject such a save.
const filesVersion = 2

// manifest describes a save. A sandbox can be restored only by the same
// programs, on a CPU with the same features, from the same image and with the
// same limits. gVisor does not check these conditions.
type manifest struct {
	Version int
	ID      brig.ID `json:",omitempty"` // the saved sandbox
	At      time.Time
	Size    int64 // disk space, in bytes
	Image   string
	Root    Root
	Limits  brig.Limits
	Carried bool
	Build   build
	// Volumes are the mounts of volumes. Memory can only be restored with the same mounts.
	Volumes []volume `json:",omitempty"`
	// FilesOnly means that the save has no memory. Such a save can be restored by
	// other builds, on other CPUs, and with other limits.
	FilesOnly bool `json:",omitempty"`
}

// firstDifference describes the first difference between a save and the
// manifest that a restore needs, or returns "" if they match.
func (m *manifest) firstDifference(want manifest) string {
	version := want.Version
	if m.FilesOnly {
		version = filesVersion
	}
	switch {
	case m.Version != version:
		return fmt.Sprintf("its format has version %d, and this server's %d", m.Version, version)
	case m.FilesOnly && m.Image != want.Image:
		return "its image is not the same"
	case m.FilesOnly && m.Limits.Disk > want.Limits.Disk:
		return fmt.Sprintf("its disk has %s, and not %s", brig.FormatBytes(m.Limits.Disk), brig.FormatBytes(want.Limits.Disk))
	case m.FilesOnly:
		return ""
	case m.Build.GVisor != want.Build.GVisor:
		return fmt.Sprintf("it was made with gVisor %s, and this server has %s", m.Build.GVisor, want.Build.GVisor)
	case m.Build.Engine != want.Build.Engine:
		return "it was made by another build of the isolation engine, which this server does not have"
	case m.Build.Agent != want.Build.Agent:
		return "it was made by another build of the agent, which this server does not have"
	case m.Build.CPU != want.Build.CPU:
		return "it was made on a processor with other features" + difference(m.Build.CPU, want.Build.CPU)
	case m.Image != want.Image || !reflect.DeepEqual(m.Root, want.Root):
		return "its image is not the same"
	case !slices.Equal(m.Volumes, want.Volumes):
		return "it has mounts of other volumes"
	case m.Limits != want.Limits:
		return fmt.Sprintf("it has the limits %+v, and not %+v", m.Limits, want.Limits)
	}
	return ""
}

// manifest returns the manifest for a new save of a sandbox with the given order and
// build.
func (o *order) manifest(b build) manifest {
	return manifest{Version: manifestVersion, Image: o.Image, Root: o.Root, Limits: o.Limits, Carried: o.Carried, Build: b, Volumes: o.Volumes}
}

// canSave reports whether this provider can save sandboxes.
func (p *Provider) canSave() bool { return p.withoutGofer }

// saveDir returns the directory of a save.
func (p *Provider) saveDir(id brig.SaveID) string {
	return filepath.Join(p.DataDir, savesDir, string(id))
}

// savesDir contains a directory per save.
const savesDir = "saves"

// savableInstance returns the instance of a sandbox if this provider can save it.
func (p *Provider) savableInstance(in brig.Instance, id brig.SaveID) (*instance, error) {
	i, ok := in.(*instance)
	if !ok || !brig.ValidName(string(id)) {
		return nil, fmt.Errorf("save %T as %q: it is not a sandbox of this provider, or not a name", in, id)
	}
	if !p.canSave() || i.order.AgentAt == "" {
		return nil, brig.Errorf(brig.Unimplemented, "gVisor cannot save this sandbox: it was started with a gofer").
			WithHint("run the server as root on a kernel with detached mounts, and create the sandbox again")
	}
	return i, nil
}

// CheckSave implements brig.Saver.
func (p *Provider) CheckSave(ctx context.Context, in brig.Instance) error {
	i, err := p.savableInstance(in, "check")
	if err != nil {
		return err
	}
	if err := i.order.checkMemorySave(); err != nil {
		return err
	}
	return i.save(ctx, saveRequest{Check: true})
}

// checkMemorySave rejects a save with memory of a sandbox with the rights of a build. Each copy from
// the save would have the rights, because they belong to the processes in the memory.
func (o *order) checkMemorySave() error {
	if !o.Build {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "the memory of a sandbox that builds a template cannot be saved").
		WithHint("save only its files (files_only)")
}

// saveTimeout is the maximum duration of a save. The disk's speed determines how
// long the pages of a large sandbox take.
const saveTimeout = 10 * time.Minute

// Save implements brig.Saver.
func (p *Provider) Save(ctx context.Context, in brig.Instance, to brig.SaveID, o brig.SaveOptions) (*brig.Save, error) {
	i, err := p.savableInstance(in, to)
	if err != nil {
		return nil, err
	}
	m := i.order.manifest(build{})
	m.ID = i.id
	if o.FilesOnly { // any build can restore the files
		m.Version, m.FilesOnly = filesVersion, true
	} else if err := i.order.checkMemorySave(); err != nil {
		return nil, err
	} else if m.Build, err = i.savedBuild(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(p.DataDir, savesDir), 0o700); err != nil {
		return nil, diskError(err, "make the folder of saves")
	}
	i.preconnect.drop()
	err = i.save(ctx, saveRequest{Dir: p.saveDir(to), Stay: o.Stay, Manifest: m})
	failpoint.Hit("save.stored")
	i.preconnect.drop() // the agent has closed a connection that was opened during the save
	if err != nil {
		return nil, err
	}
	if !o.Stay {
		select {
		case <-i.done:
		case <-time.After(stopTimeout):
			err = i.killCgroup(context.WithoutCancel(ctx))
			<-i.done // the shim exits with its sandbox
		}
		if err != nil {
			return nil, err
		}
	}
	return p.GetSave(ctx, to)
}

// save sends a save request to the shim.
func (i *instance) save(ctx context.Context, o saveRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	op := "save"
	if o.Manifest.FilesOnly {
		op = "savefiles" // a new operation, so that the shim of an older server rejects the request
	}
	a, err := i.l.call(ctx, request{Op: op, Save: &o})
	if err != nil {
		if strings.Contains(err.Error(), "no space left on device") {
			return fullError(err)
		}
		if e := layerError(err); e != nil {
			return e
		}
		if _, reported := errors.AsType[shimError](err); !reported {
			// The save may complete, or the sandbox may have ended.
			return brig.Errorf(brig.Unavailable, "the connection to the sandbox was lost during its save").
				WithHint("look at the state of the sandbox, and try again").Because(err)
		}
		return brig.Errorf(brig.FailedPrecondition, "gVisor could not save the sandbox, which continues to run").
			WithHint("the server's log has the cause").Because(err)
	}
	if len(a.Holders) > 0 {
		return heldError(a.Holders)
	}
	return nil
}

// heldError returns the error for programs that prevent a save. The programs'
// names come from the guest and are untrusted.
func heldError(holders []wire.Holder) error {
	h := holders[0]
	name, reason := brig.Clip(h.Name, 40), brig.Clip(h.Reason, 120)
	what := fmt.Sprintf("process %d (%q): %s", h.PID, name, reason)
	if h.PID == 0 {
		what = name + ": " + reason
	}
	if n := len(holders) - 1; n > 0 {
		what += fmt.Sprintf("; and %d more", n)
	}
	return brig.Errorf(brig.FailedPrecondition, "a running program prevents the save: %s", what).
		WithHint("end it first, or create sandboxes as pausable, so that programs can run in them while they are paused")
}

// isSaved reports whether a complete save of the instance exists. A save from which
// the instance was restored does not count. The shim may have been killed right
// after it completed the save.
func (i *instance) isSaved() bool {
	st, err := os.Stat(i.l.path(orderFile))
	if err != nil {
		return false
	}
	m, err := i.p.readManifest(brig.SaveID(i.id))
	return err == nil && m.At.After(st.ModTime())
}

// removeRest completes the work of a killed shim: it ends the sandbox's processes,
// and removes the sandbox's resources except the logs and the save.
func (i *instance) removeRest() error {
	err := i.killCgroup(context.Background()) //nolint:forbidigo // the end of an instance belongs to no call
	for _, name := range []string{stateDir, overlayDir, configFile} {
		err = errors.Join(err, os.RemoveAll(i.l.path(name)))
	}
	return err
}

// GetSave implements brig.Saver.
func (p *Provider) GetSave(_ context.Context, id brig.SaveID) (*brig.Save, error) {
	m, err := p.readManifest(id)
	if err != nil {
		return nil, err
	}
	packed, size, err := isPacked(p.saveDir(id))
	if err != nil {
		return nil, err
	}
	if !packed {
		size = m.Size
	}
	return &brig.Save{At: m.At, Bytes: size, Packed: packed, FilesOnly: m.FilesOnly}, nil
}

func (p *Provider) readManifest(id brig.SaveID) (*manifest, error) {
	if !brig.ValidName(string(id)) {
		return nil, brig.InvalidField("save", "%q cannot name a folder", id)
	}
	m := &manifest{}
	ok, err := layout{dir: p.saveDir(id)}.readJSON(manifestFile, m)
	if err != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the save cannot be read").Because(err)
	}
	if !ok {
		return nil, brig.Errorf(brig.NotFound, "there is no save %q", id)
	}
	return m, nil
}

// Restore implements brig.Saver.
func (p *Provider) Restore(ctx context.Context, from brig.SaveID, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	m, err := p.readManifest(from)
	if err != nil {
		return nil, err
	}
	o, err := p.newOrder(id, spec, lease)
	if err != nil {
		return nil, err
	}
	of := p.programs()
	if !m.FilesOnly {
		if err := o.checkMemorySave(); err != nil { // no such save has the rights
			return nil, err
		}
		if of, err = p.programsFor(m.Build); err != nil {
			return nil, err
		}
	}
	b, err := p.buildOf(of)
	if err != nil {
		return nil, err
	}
	o.Engine, o.Shim, o.Agent = of.Engine, of.Shim, of.Agent
	if what := m.firstDifference(o.manifest(b)); what != "" {
		return nil, brig.Errorf(brig.FailedPrecondition, "the save cannot be restored here: %s", what).
			WithHint("restore it with the build of the server, on the kind of machine, that made it")
	}
	dir, err := p.restorable(from)
	if err != nil {
		return nil, err
	}
	if m.FilesOnly {
		o.FilesFrom = dir
		return p.create(ctx, id, o)
	}
	o.From, o.Carried = dir, m.Carried
	in, err := p.create(ctx, id, o)
	if err != nil || m.ID == id {
		return in, err
	}
	if err := in.(*instance).Renew(ctx, wire.Renew{Name: o.Hostname, Generation: rand.Text()}); err != nil {
		return nil, errors.Join(creationError(fmt.Errorf("renew the copy: %w", err)), in.Destroy(context.WithoutCancel(ctx)))
	}
	return in, nil
}

// RemoveSave implements brig.Saver.
func (p *Provider) RemoveSave(_ context.Context, id brig.SaveID) error {
	if !brig.ValidName(string(id)) {
		return nil // such a save cannot exist
	}
	p.unpacked.Delete(id)
	// Remove the manifest first: a directory without a manifest is not a save.
	err := os.Remove(filepath.Join(p.saveDir(id), manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(p.saveDir(id)))
}

// sweepSaves removes incomplete saves and the saves of sandboxes that the
// engine does not know. It returns their number.
func (p *Provider) sweepSaves(known map[brig.ID]bool) (n int, err error) {
	entries, err := os.ReadDir(filepath.Join(p.DataDir, savesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list saves: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name, unfinished := strings.CutSuffix(e.Name(), newSuffix)
		if unfinished {
			if lock, err := p.layout(brig.ID(name)).lock(); lock != nil {
				lock.Close()
			} else if err == nil {
				continue // the shim is still writing the save
			}
		} else if known[brig.ID(name)] {
			continue
		}
		n++
		errs = append(errs, os.RemoveAll(filepath.Join(p.DataDir, savesDir, e.Name())))
	}
	return n, errors.Join(errs...)
}
