package workspace

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Store stores workspaces in Objects.
type Store struct {
	// MaxWorkspaces is the maximum number of workspaces of a tenant. The limit
	// is needed because an empty workspace does not count against the quota.
	// New sets it to 10,000. Create checks the limit before it writes, so
	// callers must serialize the creation of workspaces.
	MaxWorkspaces int

	o       Objects
	now     func() time.Time
	memory  *memory
	ledgers sync.Map // maps tenants to *ledger
	// declared limits the declared sizes of staged files, and staged limits the
	// bytes that these files use.
	declared, staged *memory
}

// New returns a store. If now is nil, the store uses the system clock.
func New(o Objects, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{MaxWorkspaces: maxWorkspaces, o: o, now: now, memory: newMemory(tenantMemory, serverMemory),
		declared: newMemory(tenantStaged, math.MaxInt64), staged: newMemory(tenantStaged, serverStaged)}
}

// hold protects all objects of a tenant from sweeps until release is called.
// It blocks until a sweep in progress has finished, or ctx is done.
func (s *Store) hold(ctx context.Context, tenant string) (release func(), err error) {
	release, err = s.o.Hold(ctx, tenantKey(tenant), false)
	return release, unavailableError(err)
}

// tenantKey returns the prefix of all keys of a tenant. Different tenants have
// different prefixes, and none is a prefix of another.
func tenantKey(tenant string) string {
	if brig.ValidName(tenant) {
		return "t/" + tenant
	}
	return "t/=" + hex.EncodeToString([]byte(tenant))
}

func nameKey(tenant, name string) string { return tenantKey(tenant) + "/names/" + name }

func versionsKey(tenant, id string) string { return tenantKey(tenant) + "/versions/" + id + "/" }

// blobKey returns the key of a content or a manifest.
func blobKey(tenant, digest string) string {
	return tenantKey(tenant) + "/blobs/" + digest[:2] + "/" + digest
}

// nameRecord is the stored state of a workspace's name.
type nameRecord struct {
	ID      string
	Created time.Time
}

// record is the stored state of a version.
type record struct {
	brig.WorkspaceVersion
	Manifest string // the digest of the stored manifest
	// Own is the manifest of the sandbox's own files if the version also has
	// changes of other sandboxes. The sandbox's next commit is compared with
	// this manifest.
	Own string `json:",omitempty"`
	// Outside is the manifest of the files captured outside /workspace, by
	// paths relative to the root.
	Outside string `json:",omitempty"`
	// Mark distinguishes a record from all others, even from one with equal
	// content.
	Mark string `json:",omitempty"`
}

// manifests returns the digests of a version's manifests.
func (r *record) manifests() []string {
	return slices.DeleteFunc([]string{r.Manifest, r.Own, r.Outside}, func(d string) bool { return d == "" })
}

// isValid reports whether all digests in the record are valid.
func (r *record) isValid() bool {
	return !slices.ContainsFunc(r.manifests(), func(d string) bool { return !isDigest(d) })
}

// maxRecord is the maximum size of the record of a name or a version, in
// bytes.
const maxRecord = 64 << 10

func (s *Store) readJSON(ctx context.Context, key string, v any) error {
	b, err := readAll(ctx, s.o, key, maxRecord)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: decode %s: %w", errBroken, key, err)
	}
	return nil
}

// create creates an object with unique content. An S3 client repeats a request
// without a response, and may then find the object that its first attempt has
// created.
func (s *Store) create(ctx context.Context, key string, data []byte) error {
	err := s.o.Create(ctx, key, data)
	if errors.Is(err, ErrTaken) {
		if stored, readErr := readAll(ctx, s.o, key, maxRecord); readErr == nil && bytes.Equal(stored, data) {
			return nil
		}
	}
	return err
}

// unavailableError returns the error that callers see when the store fails.
func unavailableError(err error) error {
	if _, classified := errors.AsType[*brig.Error](err); classified || err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return brig.Errorf(brig.Unavailable, "the store of workspaces is not consistent").
		WithHint("try again; the server's log has the cause").Because(err)
}

func missingError(name string) error {
	return brig.Errorf(brig.NotFound, "no workspace %q", EscapePath(name[:min(len(name), 80)])).WithHint("list workspaces to see what exists")
}

// find returns the stored state of a name.
func (s *Store) find(ctx context.Context, tenant, name string) (*nameRecord, error) {
	if !brig.ValidName(name) {
		return nil, missingError(name)
	}
	var n nameRecord
	err := s.readJSON(ctx, nameKey(tenant, name), &n)
	if errors.Is(err, ErrMissing) {
		return nil, missingError(name)
	}
	if err == nil && !isValidID(n.ID) {
		err = fmt.Errorf("%w: workspace %s has the id %.40q", errBroken, name, n.ID)
	}
	if err != nil {
		return nil, unavailableError(err)
	}
	return &n, nil
}

func isValidID(id string) bool { return len(id) > 8 && brig.ValidName(id) }

// Create creates an empty workspace.
func (s *Store) Create(ctx context.Context, tenant, name string) (*brig.Workspace, error) {
	if !brig.ValidName(name) {
		return nil, brig.InvalidField("name", "%q is not a name", EscapePath(name[:min(len(name), 80)])).
			WithHint("use 1 to 63 of a-z, 0-9 and -, not beginning with -")
	}
	if err := s.checkCount(ctx, tenant); err != nil {
		return nil, err
	}
	n := nameRecord{ID: "ws" + strings.ToLower(rand.Text()), Created: s.now().UTC()}
	b, err := json.Marshal(n)
	if err == nil {
		err = s.create(ctx, nameKey(tenant, name), b)
	}
	failpoint.Hit("workspace.created")
	if errors.Is(err, ErrTaken) {
		return nil, brig.Errorf(brig.AlreadyExists, "workspace %q exists", name).WithHint("choose another name, or use it")
	}
	if err != nil {
		return nil, unavailableError(err)
	}
	return &brig.Workspace{Name: name, ID: n.ID, Store: s.o.Kind(), Created: n.Created}, nil
}

// maxWorkspaces is the default of MaxWorkspaces.
var maxWorkspaces = 10_000

func (s *Store) checkCount(ctx context.Context, tenant string) error {
	n := 0
	err := s.o.List(ctx, tenantKey(tenant)+"/names/", func(string) error {
		if n++; n >= s.MaxWorkspaces {
			return brig.Errorf(brig.FailedPrecondition, "the tenant already has %d workspaces", s.MaxWorkspaces).
				WithHint("remove those that are not used")
		}
		return nil
	})
	if err != nil && brig.KindOf(err) != brig.FailedPrecondition {
		return unavailableError(err)
	}
	return err
}

// List returns a tenant's workspaces, sorted by name. If the newest version of
// a workspace is damaged, its Head is nil. If the record of its name is
// damaged, its ID is also empty.
func (s *Store) List(ctx context.Context, tenant string) ([]*brig.Workspace, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.list(ctx, tenant)
}

// list is like List, for callers that hold the tenant's objects.
func (s *Store) list(ctx context.Context, tenant string) ([]*brig.Workspace, error) {
	prefix := tenantKey(tenant) + "/names/"
	var names []string
	err := s.o.List(ctx, prefix, func(key string) error {
		names = append(names, strings.TrimPrefix(key, prefix))
		return nil
	})
	if err != nil {
		return nil, unavailableError(err)
	}
	slices.Sort(names)
	out := []*brig.Workspace{}
	for _, name := range names {
		n, err := s.find(ctx, tenant, name)
		if brig.KindOf(err) == brig.NotFound {
			continue
		}
		if isDataLoss(err) {
			out = append(out, &brig.Workspace{Name: name, Store: s.o.Kind()})
			continue
		}
		if err != nil {
			return nil, err
		}
		head, err := s.readHead(ctx, tenant, n.ID)
		if err != nil && !isDataLoss(err) {
			return nil, err
		}
		w := &brig.Workspace{Name: name, ID: n.ID, Store: s.o.Kind(), Created: n.Created}
		if head != nil {
			w.Head = &head.WorkspaceVersion
		}
		out = append(out, w)
	}
	return out, nil
}

// Remove deletes a workspace. Sweep removes its objects.
func (s *Store) Remove(ctx context.Context, tenant, name string) error {
	if _, err := s.find(ctx, tenant, name); err != nil && !isDataLoss(err) {
		return err
	}
	err := s.o.Delete(ctx, nameKey(tenant, name))
	s.ledger(tenant).forget()
	failpoint.Hit("workspace.removed")
	return unavailableError(err)
}

// listNumbers lists the existing versions, oldest first.
func (s *Store) listNumbers(ctx context.Context, tenant, id string) ([]int, error) {
	prefix := versionsKey(tenant, id)
	var out []int
	err := s.o.List(ctx, prefix, func(key string) error {
		if n, err := strconv.Atoi(strings.TrimPrefix(key, prefix)); err == nil && n > 0 {
			out = append(out, n)
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

func versionKey(tenant, id string, n int) string {
	return versionsKey(tenant, id) + fmt.Sprintf("%08d", n)
}

// readVersion reads the record of a version.
func (s *Store) readVersion(ctx context.Context, tenant, id string, n int) (*record, error) {
	var r record
	if err := s.readJSON(ctx, versionKey(tenant, id, n), &r); err != nil {
		return nil, err
	}
	if r.Number != n || r.Manifest == "" || !r.isValid() {
		return nil, fmt.Errorf("%w: the record of version %d of %s", errBroken, n, id)
	}
	return &r, nil
}

// readHead reads the record of the newest version. It returns nil if there is no
// version.
func (s *Store) readHead(ctx context.Context, tenant, id string) (*record, error) {
	ns, err := s.listNumbers(ctx, tenant, id)
	if err != nil || len(ns) == 0 {
		return nil, unavailableError(err)
	}
	r, err := s.readVersion(ctx, tenant, id, ns[len(ns)-1])
	return r, unavailableError(err)
}

// Versions lists a workspace's versions, newest first.
func (s *Store) Versions(ctx context.Context, tenant, name string) ([]*brig.WorkspaceVersion, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	ns, err := s.listNumbers(ctx, tenant, n.ID)
	if err != nil {
		return nil, unavailableError(err)
	}
	out := []*brig.WorkspaceVersion{}
	for _, v := range slices.Backward(ns) {
		r, err := s.readVersion(ctx, tenant, n.ID, v)
		if isDataLoss(err) {
			continue // a damaged version must not hide the others
		}
		if err != nil {
			return nil, unavailableError(err)
		}
		out = append(out, &r.WorkspaceVersion)
	}
	return out, nil
}
