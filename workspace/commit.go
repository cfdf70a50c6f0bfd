package workspace

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// outside is the reason reported for a change that was skipped because the
// write policy does not allow it.
const outside = "outside the prefixes that may be written"

// Commit creates the version: the allowed changes of the tree since its base
// version, applied to the newest version.
func (c *Capture) Commit(ctx context.Context, actor string) (*brig.WorkspaceCommit, error) {
	c.work.Wait()
	if c.err != nil {
		return nil, unavailableError(c.err)
	}
	failpoint.Hit("workspace.captured")
	c.keepSkipped()
	var mine []change
	for _, d := range diff(c.base.files, c.files) {
		if c.allowed.allows(d) {
			mine = append(mine, d)
		} else {
			c.skip(d.path, outside)
		}
	}
	out := &brig.WorkspaceCommit{Name: c.use.Name, Skipped: c.skipped, Passed: c.passed, Changes: []brig.WorkspaceChange{}, Captured: c.captured()}
	for used := c.memory.used(); ; c.memory.reuse(used) {
		head, err := c.openHead(ctx)
		if err != nil {
			return nil, err
		}
		merged, conflict := merge(c.base.files, head.files, mine)
		if conflict != "" {
			return nil, brig.Errorf(brig.FailedPrecondition, "version %d of workspace %q has changed %q, too", head.Number, c.use.Name, EscapePath(conflict)).
				WithHint("the sandbox began with version %d; copy its files out, or restore that version first", c.use.Version)
		}
		var own, outside encodedManifest
		if len(c.outside) > 0 {
			if outside, err = c.outside.measureEncoded(); err != nil {
				return nil, err
			}
		}
		if out.Version = head.Record(); len(diff(head.files, merged)) == 0 && !outside.isDifferentFrom(head.rec) {
			return out, nil
		}
		if head != c.base {
			if own, err = c.buildOwnManifest(mine); err != nil {
				return nil, err
			}
		}
		r, names, err := c.write(ctx, merged, own, outside)
		if err != nil {
			return nil, err
		}
		r.Number, r.Base, r.Actor, r.Sandbox = head.Number+1, c.base.Number, actor, c.sandbox
		if err = c.s.append(ctx, c.tenant, c.use.ID, r); errors.Is(err, ErrTaken) {
			continue // a concurrent commit has taken this number
		}
		if err != nil {
			// The record may exist despite the error.
			c.s.ledger(c.tenant).forget()
			return nil, unavailableError(err)
		}
		c.s.ledger(c.tenant).settle(names)
		c.s.trim(ctx, c.tenant, c.use.ID, r.Number)
		maps.DeleteFunc(c.wrote, func(digest string, _ bool) bool { _, named := names[digest]; return named })
		out.Version, out.Changes, out.Changed = &r.WorkspaceVersion, toChanges(mine, brig.MaxWorkspacePaths), len(mine)
		return out, nil
	}
}

// openHead returns the newest version.
func (c *Capture) openHead(ctx context.Context) (*Snapshot, error) {
	r, err := c.s.readHead(ctx, c.tenant, c.use.ID)
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
	return c.s.openVersion(ctx, c.memory, c.use.Name, c.use.ID, number)
}

// encodedManifest is a manifest with the digest and the size of its stored form. The zero
// value means no manifest.
type encodedManifest struct {
	files  manifest
	size   int64
	digest string
}

func (m manifest) measureEncoded() (encodedManifest, error) {
	sum := sha256.New()
	size, err := m.encode(sum)
	return encodedManifest{m, size, hex.EncodeToString(sum.Sum(nil))}, err
}

// putManifest stores a manifest. A large manifest is encoded into a staged file,
// because its stored form may take several times the memory of its names.
func (c *Capture) putManifest(ctx context.Context, x encodedManifest) error {
	key := blobKey(c.tenant, x.digest)
	if x.size <= smallContent {
		var b bytes.Buffer
		if _, err := x.files.encode(&b); err != nil {
			return err
		}
		return unavailableError(c.s.o.Put(ctx, key, b.Bytes()))
	}
	for _, m := range []*memory{c.s.declared, c.s.staged} {
		u := m.use(c.tenant)
		defer u.release()
		if err := u.reserve(ctx, x.size); err != nil {
			return unavailableError(err)
		}
	}
	stage, err := c.s.o.Stage(ctx)
	if err != nil {
		return unavailableError(err)
	}
	defer stage.Abort()
	w := bufio.NewWriterSize(stage, 64<<10)
	if _, err = x.files.encode(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = stage.Publish(ctx, key)
	}
	return unavailableError(err)
}

// isDifferentFrom reports whether the captured files differ from those of a version.
func (x encodedManifest) isDifferentFrom(r *record) bool {
	return x.digest != "" && (r == nil || r.Outside != x.digest)
}

// write stores manifests and prepares the record of their version. It returns
// the sizes of the contents that the record references, after it has reserved
// them in the tenant's quota.
func (c *Capture) write(ctx context.Context, m manifest, own, outside encodedManifest) (*record, map[string]int64, error) {
	if len(m) > brig.MaxWorkspaceFiles {
		return nil, nil, limitError("files", brig.MaxWorkspaceFiles)
	}
	r := newRecord()
	r.Own, r.Outside = own.digest, outside.digest
	r.Digest, r.Created = m.digest(), c.s.now().UTC()
	if r.Files, r.Size = m.size(); r.Size > brig.MaxWorkspaceSize {
		return nil, nil, limitError("bytes", brig.FormatBytes(brig.MaxWorkspaceSize))
	}
	if m.names() > brig.MaxWorkspaceNames {
		return nil, nil, namesError()
	}
	r.Captured, r.CapturedSize = len(outside.files)-outside.files.directories(), c.outsideBytes
	whole, err := m.measureEncoded()
	if err != nil {
		return nil, nil, err
	}
	r.Manifest = whole.digest
	kept := []encodedManifest{whole}
	for _, x := range []encodedManifest{own, outside} {
		if x.digest != "" {
			kept = append(kept, x)
		}
	}
	names := map[string]int64{versionName(r): versionCharge}
	for _, x := range kept {
		maps.Copy(names, x.files.contents())
		names[x.digest] = x.size
	}
	if err := c.reserve(ctx, names); err != nil {
		return nil, nil, err
	}
	for _, x := range kept {
		c.recordWrite(x.digest)
		if err := c.putManifest(ctx, x); err != nil {
			return nil, nil, err
		}
	}
	failpoint.Hit("workspace.manifest")
	return r, names, nil
}

// buildOwnManifest returns the manifest of the sandbox's own files, without the
// skipped changes.
func (c *Capture) buildOwnManifest(mine []change) (encodedManifest, error) {
	own, _ := merge(c.base.files, c.base.files, mine) // no other path has changed
	if own == nil {
		return encodedManifest{}, errors.New("the changes of a sandbox are no tree")
	}
	return own.measureEncoded()
}
