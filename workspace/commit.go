package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// outside is what is said of a change that the write policy does not allow.
const outside = "outside the prefixes that may be written"

// Commit makes the version: the tree's changes since the version that it began
// with, where they are allowed, on top of the newest.
func (c *Capture) Commit(ctx context.Context, actor string) (*brig.WorkspaceCommit, error) {
	c.work.Wait()
	if c.err != nil {
		return nil, unavailable(c.err)
	}
	failpoint.Hit("workspace.captured")
	var mine []change
	for _, d := range diff(c.base.files, c.files) {
		if c.allowed.allows(d) {
			mine = append(mine, d)
		} else {
			c.skip(d.path, outside)
		}
	}
	out := &brig.WorkspaceCommit{Name: c.use.Name, Skipped: c.skipped, Passed: c.passed, Changes: []brig.WorkspaceChange{}}
	for {
		head, err := c.head(ctx)
		if err != nil {
			return nil, err
		}
		merged, conflict := merge(c.base.files, head.files, mine)
		if conflict != "" {
			return nil, brig.Errorf(brig.FailedPrecondition, "version %d of workspace %q has changed %q, too", head.Number, c.use.Name, Printable(conflict)).
				WithHint("the sandbox began with version %d; copy its files out, or restore that version first", c.use.Version)
		}
		if out.Version = head.Record(); len(diff(head.files, merged)) == 0 {
			return out, nil
		}
		r, err := c.write(ctx, merged)
		if err == nil && head != c.base {
			r.Own, err = c.writeOwn(ctx, mine)
		}
		if err != nil {
			return nil, err
		}
		r.Number, r.Base, r.Actor, r.Sandbox = head.Number+1, c.base.Number, actor, c.sandbox
		if err = c.s.append(ctx, c.tenant, c.use.ID, r); errors.Is(err, ErrTaken) {
			continue // somebody was faster
		}
		out.Version, out.Changes, out.Changed = &r.WorkspaceVersion, tell(mine, brig.MaxWorkspaceTold), len(mine)
		return out, unavailable(err)
	}
}

// head is the newest version.
func (c *Capture) head(ctx context.Context) (*Snapshot, error) {
	r, err := c.s.head(ctx, c.tenant, c.use.ID)
	if err != nil {
		return nil, err
	}
	number := 0
	if r != nil {
		number = r.Number
	}
	if number == c.base.Number && (r == nil || r.Own == "" || r.Sandbox != c.sandbox) {
		return c.base, nil
	}
	return c.s.open(ctx, c.tenant, c.use.Name, c.use.ID, number)
}

// write keeps a manifest and begins the record of its version.
func (c *Capture) write(ctx context.Context, m manifest) (*record, error) {
	if len(m) > brig.MaxWorkspaceFiles {
		return nil, tooMuch("files", brig.MaxWorkspaceFiles)
	}
	digest, err := c.writeManifest(ctx, m)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("workspace.manifest")
	r := &record{Manifest: digest}
	r.Digest, r.Created = m.digest(), c.s.now().UTC()
	if r.Files, r.Size = m.size(); r.Size > brig.MaxWorkspaceSize {
		return nil, tooMuch("bytes", brig.FormatBytes(brig.MaxWorkspaceSize))
	}
	return r, nil
}

// writeOwn keeps the manifest of what the sandbox has, as far as it is
// committed.
func (c *Capture) writeOwn(ctx context.Context, mine []change) (string, error) {
	own, _ := merge(c.base.files, c.base.files, mine) // it has changed nothing else
	if own == nil {
		return "", errors.New("the changes of a sandbox are no tree")
	}
	return c.writeManifest(ctx, own)
}

func (c *Capture) writeManifest(ctx context.Context, m manifest) (string, error) {
	b, err := m.encode()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	digest := hex.EncodeToString(sum[:])
	return digest, unavailable(c.s.o.Put(ctx, blobKey(c.tenant, digest), b))
}
