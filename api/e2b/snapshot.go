package e2b

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// snapshots finds, lists and removes snapshots. A snapshot is a paused copy of a
// sandbox that has no labelAPI, so that it is not a sandbox of this API.
type snapshots struct{ *env }

// snapshotInfo describes a snapshot.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func infoOf(s *brig.Sandbox) snapshotInfo {
	info := snapshotInfo{SnapshotID: string(s.ID), Names: []string{}}
	if name := s.Spec.Labels[labelSnapshotName]; name != "" {
		info.Names = append(info.Names, name)
	}
	return info
}

// all returns the tenant's snapshots with the given labels, newest first.
func (sn *snapshots) all(ctx context.Context, labels map[string]string) ([]*brig.Sandbox, error) {
	o := brig.ListOptions{States: []brig.State{brig.Paused}, Limit: readPage, Labels: map[string]string{labelSnapshot: "true"}}
	maps.Copy(o.Labels, labels)
	all, err := sn.scan(ctx, o)
	slices.SortFunc(all, func(a, b *brig.Sandbox) int { return compareStart(b, a) })
	return all, err
}

// find returns the snapshot with the ID ref, or else the newest snapshot with
// the name ref, which may have the default tag. It returns nil if there is no
// such snapshot.
func (sn *snapshots) find(ctx context.Context, ref string) (*brig.Sandbox, error) {
	s, err := sn.Service.Get(ctx, ref)
	switch {
	case err == nil && string(s.ID) == ref && s.State == brig.Paused && s.Spec.Labels[labelSnapshot] != "":
		return s, nil
	case err != nil && brig.KindOf(err) != brig.NotFound && brig.KindOf(err) != brig.InvalidArgument:
		return nil, err
	}
	// The name is compared with a whole list, which takes as much memory as a
	// large response.
	done, err := httpapi.LeaseOf(ctx).WaitForTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	all, err := sn.all(ctx, map[string]string{labelSnapshotName: strings.TrimSuffix(ref, ":"+defaultTag)})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

func (sn *snapshots) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	sel, err := parsePage(q)
	if err != nil {
		return err
	}
	labels := map[string]string{}
	if id := q.Get("sandboxID"); id != "" {
		if labels[labelSnapshotOf], err = parseID(id); err != nil {
			return err
		}
	}
	if name := q.Get("name"); name != "" {
		labels[labelSnapshotName] = name
	}
	all, err := sn.all(r.Context(), labels)
	if err != nil {
		return err
	}
	page, next := sel.page(all)
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	out := make([]snapshotInfo, 0, len(page))
	for _, s := range page {
		out = append(out, infoOf(s))
	}
	sn.write(w, r, http.StatusOK, out)
	return nil
}

// copies makes copies of sandboxes: forks, snapshots, and sandboxes from
// snapshots.
type copies struct {
	*env
	finder    *finder
	sandboxes *sandboxes
}

// forkResult is the result of one copy of a fork: a sandbox, or an error if the limits do not allow
// it. If they allow no copy, the request fails.
type forkResult struct {
	Sandbox *connectedSandbox `json:"sandbox,omitempty"`
	Error   *problem          `json:"error,omitempty"`
}

func (c *copies) fork(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Timeout int64 `json:"timeout"`
		Count   int   `json:"count"`
	}{Timeout: leaseV1, Count: 1}
	s, err := c.finder.findAndRead(w, r, &in)
	if err != nil {
		return err
	}
	if in.Count < 1 || in.Count > brig.MaxForks {
		return brig.InvalidField("count", "give 1 to %d", brig.MaxForks)
	}
	ttl, err := c.sandboxes.newLease(in.Timeout)
	if err != nil {
		return err
	}
	made, err := c.Service.Fork(r.Context(), string(s.ID), brig.ForkSpec{Count: in.Count, Partial: true, TTL: ttl})
	if err != nil {
		return err
	}
	c.Started(s.Tenant, len(made))
	out := make([]forkResult, 0, in.Count)
	for _, s := range made {
		c.cache.add(string(s.ID), s.Tenant)
		connected := c.sandboxes.connected(r.Context(), s)
		out = append(out, forkResult{Sandbox: &connected})
	}
	for len(out) < in.Count {
		out = append(out, forkResult{Error: &problem{Code: http.StatusTooManyRequests, Message: "the limits of the tenant or of the server do not allow more sandboxes"}})
	}
	c.write(w, r, http.StatusCreated, out)
	return nil
}

// maxSnapshotName is the maximum length of a snapshot's name in bytes.
const maxSnapshotName = 128

func (c *copies) snapshot(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string `json:"name"`
	}
	s, err := c.finder.findAndRead(w, r, &in)
	if err != nil {
		return err
	}
	if len(in.Name) > maxSnapshotName {
		return brig.InvalidField("name", "give at most %d bytes", maxSnapshotName)
	}
	labels := maps.Clone(s.Spec.Labels)
	delete(labels, labelAPI)
	delete(labels, labelSnapshotName)
	labels[labelSnapshot], labels[labelSnapshotOf] = "true", string(s.ID)
	if in.Name != "" {
		labels[labelSnapshotName] = strings.TrimSuffix(in.Name, ":"+defaultTag)
	}
	made, err := c.Service.Fork(r.Context(), string(s.ID), brig.ForkSpec{Paused: true, Labels: labels})
	if err != nil {
		return err
	}
	c.write(w, r, http.StatusCreated, infoOf(made[0]))
	return nil
}

// fromSnapshot creates a sandbox from a snapshot. Without a request for other network rules, those
// of the sandbox that was copied apply: some SDKs ask for internet access by default.
func (sb *sandboxes) fromSnapshot(ctx context.Context, n *newSandbox, snapshot *brig.Sandbox, spec brig.Spec) (*brig.Sandbox, error) {
	o := brig.ForkSpec{
		Labels: maps.Clone(spec.Labels), TTL: spec.TTL, Env: spec.Env,
		AtEnd: &brig.AtEnd{Pause: spec.PauseAtEnd, FilesOnly: spec.PauseFilesOnly}, Volumes: spec.Volumes,
	}
	if n.Network != nil || isFalse(n.AllowInternetAccess) && hasInternet(snapshot.Spec.Egress) {
		o.Egress = &spec.Egress
		o.Egress.Bandwidth = snapshot.Spec.Egress.Bandwidth
	}
	inherited := []string{labelPublic, labelMask, labelHTTPS, labelNetwork}
	if n.Network != nil && n.Network.AllowPublicTraffic != nil {
		inherited = nil
	} else if n.Network != nil {
		inherited = inherited[:1] // the ports do not become public by other outbound rules
	}
	for _, k := range inherited {
		if v, ok := snapshot.Spec.Labels[k]; ok {
			o.Labels[k] = v
		}
	}
	made, err := sb.Service.Fork(ctx, string(snapshot.ID), o)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}
