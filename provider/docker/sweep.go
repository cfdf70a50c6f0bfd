package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
)

// maxCreationAge is the maximum age of an unknown container that may still be in
// creation.
const maxCreationAge = 2 * time.Minute

// Sweep implements brig.Provider. It ignores containers without this server's
// label.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	list, err := p.api.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", labelInstance+"="+p.Instance),
	})
	if err != nil {
		return 0, engineError(err)
	}
	var errs []error
	n := 0
	existing := map[brig.ID]bool{}
	for _, c := range list.Items {
		id := brig.ID(c.Labels[labelSandbox])
		if c.Labels[labelInstance] != p.Instance || id != "" && (known[id] || p.isTethered(id, c)) {
			existing[id] = true
			continue
		}
		if id == "" && time.Since(time.Unix(c.Created, 0)) < maxCreationAge {
			continue // a container that fills the agent's volume
		}
		i := newInstance(p, id, order{Container: c.ID})
		err := i.remove(ctx)
		if err == nil && brig.ValidName(string(id)) {
			err = os.RemoveAll(i.f.dir)
		}
		if err == nil {
			n++
		}
		existing[id] = true
		errs = append(errs, err)
	}
	removed, err := p.sweepFolders(known, existing)
	return n + removed, errors.Join(append(errs, err)...)
}

// isTethered reports whether a container is tethered to a process. Such a
// process still exists, because the container would have ended with the
// process.
func (p *Provider) isTethered(id brig.ID, c container.Summary) bool {
	if c.State != container.StateRunning && c.State != container.StatePaused || c.Labels[labelEphemeral] != "true" {
		return false
	}
	o, ok, err := p.folder(id).readOrder()
	return err != nil || !ok || o.Ephemeral
}

// sweepFolders removes the directories of containers that no longer exist.
func (p *Provider) sweepFolders(known, existing map[brig.ID]bool) (int, error) {
	dir := filepath.Join(p.DataDir, foldersDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list sandboxes: %w", err)
	}
	var errs []error
	n := 0
	for _, e := range entries {
		id := brig.ID(e.Name())
		if known[id] || existing[id] {
			continue
		}
		if _, ok, err := p.folder(id).readOrder(); err == nil && !ok {
			if st, err := e.Info(); err != nil || time.Since(st.ModTime()) < maxCreationAge {
				continue
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}
