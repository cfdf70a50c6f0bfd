package workspace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Snapshot is one version of a workspace, or the empty one before the first.
type Snapshot struct {
	// ID is the workspace's ID, and Number the version's number.
	ID     string
	Number int
	rec    *record // nil for the empty version
	files  manifest
}

// Record returns the record of the version, or nil for the empty one.
func (s *Snapshot) Record() *brig.WorkspaceVersion {
	if s.rec == nil {
		return nil
	}
	return &s.rec.WorkspaceVersion
}

// Find returns a workspace's ID and the number of a version. Version 0 means
// the newest.
func (s *Store) Find(ctx context.Context, tenant, name string, version int) (id string, number int, err error) {
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return "", 0, err
	}
	if version == 0 {
		head, err := s.head(ctx, tenant, n.ID)
		if err != nil || head == nil {
			return n.ID, 0, err
		}
		return n.ID, head.Number, nil
	}
	if _, err := s.version(ctx, tenant, n.ID, version); err != nil {
		return "", 0, noVersion(name, version, err)
	}
	return n.ID, version, nil
}

func noVersion(name string, version int, err error) error {
	if errors.Is(err, ErrMissing) {
		return brig.Errorf(brig.NotFound, "workspace %q has no version %d", name, version).WithHint("list its versions to see what exists")
	}
	return unavailable(err)
}

// open reads a version. Version 0 is empty.
func (s *Store) open(ctx context.Context, tenant, name, id string, number int) (*Snapshot, error) {
	snap := &Snapshot{ID: id, Number: number, files: manifest{}}
	if number == 0 {
		return snap, nil
	}
	var err error
	if snap.rec, err = s.version(ctx, tenant, id, number); err != nil {
		return nil, noVersion(name, number, err)
	}
	snap.files, err = s.manifest(ctx, tenant, snap.rec.Manifest)
	if err == nil && snap.files.digest() != snap.rec.Digest {
		err = fmt.Errorf("%w: version %d of %s has another's manifest", errBroken, number, id)
	}
	if err != nil {
		return nil, damagedError(name, number, err)
	}
	return snap, nil
}

// damagedError returns the error for a version that was modified in the store.
// If the store only fails to respond, it returns an Unavailable error.
func damagedError(name string, number int, err error) error {
	if !isDataLoss(err) {
		return unavailable(err)
	}
	return brig.Errorf(brig.FailedPrecondition, "version %d of workspace %q is damaged: a stored object does not match its digest", number, name).
		WithHint("restore another version, and find out who wrote to the store").Because(err)
}

func (s *Store) manifest(ctx context.Context, tenant, digest string) (manifest, error) {
	m, _, err := s.sizedManifest(ctx, tenant, digest)
	return m, err
}

// sizedManifest is like manifest, but also returns the encoded size.
func (s *Store) sizedManifest(ctx context.Context, tenant, digest string) (manifest, int64, error) {
	b, err := readAll(ctx, s.o, blobKey(tenant, digest), maxManifest)
	if err != nil {
		return nil, 0, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != digest {
		return nil, 0, fmt.Errorf("%w: manifest %s has another digest", errBroken, digest)
	}
	m, err := decodeManifest(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", errBroken, err)
	}
	return m, int64(len(b)), err
}

// Unpack passes all nodes of a version to put, parents first. The readers
// verify the contents: put gets an error at the end of a modified content. The
// caller holds the tenant's objects; see Hold.
func (s *Store) Unpack(ctx context.Context, tenant string, use brig.WorkspaceUse, put func(brig.Node, io.Reader) error) error {
	snap, err := s.open(ctx, tenant, use.Name, use.ID, use.Version)
	if err != nil {
		return err
	}
	for _, p := range snap.files.paths() {
		e := snap.files[p]
		if e.Type != brig.RegularFile {
			err = put(e.Node, nil)
		} else {
			err = s.unpackFile(ctx, tenant, use, e, put)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) unpackFile(ctx context.Context, tenant string, use brig.WorkspaceUse, e *entry, put func(brig.Node, io.Reader) error) error {
	if e.Size == 0 {
		return put(e.Node, strings.NewReader(""))
	}
	r, err := s.o.Get(ctx, blobKey(tenant, e.digest))
	if errors.Is(err, ErrMissing) {
		return damagedError(use.Name, use.Version, err)
	}
	if err != nil {
		return unavailable(err)
	}
	defer r.Close()
	c := &checked{r: r, left: e.Size, want: e.digest, hash: sha256.New()}
	err = put(e.Node, c)
	if c.bad != nil {
		return damagedError(use.Name, use.Version, fmt.Errorf("content of %.200q: %w", e.Path, c.bad))
	}
	return err
}

// checked is a reader that fails if a content was modified.
type checked struct {
	r    io.Reader
	left int64
	want string
	hash hash.Hash
	bad  error
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	if c.bad != nil {
		return 0, c.bad
	}
	n, err := c.r.Read(p)
	c.hash.Write(p[:n])
	switch c.left -= int64(n); {
	case c.left < 0:
		c.bad = fmt.Errorf("%w: it is too long", errBroken)
	case errors.Is(err, io.EOF) && c.left > 0:
		c.bad = fmt.Errorf("%w: it is too short", errBroken)
	case errors.Is(err, io.EOF) && hex.EncodeToString(c.hash.Sum(nil)) != c.want:
		c.bad = fmt.Errorf("%w: it has another digest", errBroken)
	case err != nil && !errors.Is(err, io.EOF):
		c.bad = err
	}
	if c.bad != nil {
		return 0, c.bad
	}
	return n, err
}

// Diff lists the paths at which two versions differ.
func (s *Store) Diff(ctx context.Context, tenant, name string, from, to int) ([]brig.WorkspaceChange, error) {
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	a, err := s.open(ctx, tenant, name, n.ID, from)
	if err != nil {
		return nil, err
	}
	b, err := s.open(ctx, tenant, name, n.ID, to)
	if err != nil {
		return nil, err
	}
	list := diff(a.files, b.files)
	return toChanges(list, len(list)), nil
}

// Restore creates a new version with the content of an old one.
func (s *Store) Restore(ctx context.Context, tenant, actor, name string, version int) (*brig.WorkspaceVersion, error) {
	release, err := s.Hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	old, err := s.open(ctx, tenant, name, n.ID, version)
	if err != nil {
		return nil, err
	}
	if old.rec == nil {
		return nil, noVersion(name, version, ErrMissing)
	}
	for {
		head, err := s.head(ctx, tenant, n.ID)
		if err != nil {
			return nil, err
		}
		r := *old.rec
		r.Own, r.Outside, r.Captured, r.CapturedSize = "", "", 0, 0
		r.Number, r.Base, r.Restored = head.Number+1, head.Number, version
		r.Created, r.Actor, r.Sandbox = s.now().UTC(), actor, ""
		if err = s.append(ctx, tenant, n.ID, &r); !errors.Is(err, ErrTaken) {
			return &r.WorkspaceVersion, unavailable(err)
		}
	}
}

// append writes the record of a version, unless a record with its number
// exists.
func (s *Store) append(ctx context.Context, tenant, id string, r *record) error {
	r.Mark = rand.Text()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = s.create(ctx, versionKey(tenant, id, r.Number), b)
	failpoint.Hit("workspace.committed")
	return err
}
