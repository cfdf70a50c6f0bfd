package e2b

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// What E2B tells of every sandbox and means nothing here.
const (
	clientID    = "6532622b" // clients of old put it behind the id
	envdVersion = "0.6.13"   // what the data plane can do
)

// connectedSandbox is what a client needs to use a sandbox.
type connectedSandbox struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

func (d *Door) connected(ctx context.Context, s *brig.Sandbox) connectedSandbox {
	template := s.Spec.Labels[labelTemplate]
	c := connectedSandbox{
		SandboxID: string(s.ID), TemplateID: template, Alias: template,
		ClientID: clientID, EnvdVersion: envdVersion,
	}
	source, told := d.source(brig.ActorFrom(ctx))
	if told {
		c.EnvdAccessToken = d.token(string(s.ID), source)
	}
	if told && !ofGrant(source) {
		d.known.told(string(s.ID), source)
	}
	if told && isClosed(s) {
		token := d.trafficToken(string(s.ID), source)
		c.TrafficAccessToken = &token
	}
	if d.Domain != "" {
		c.Domain = &d.Domain
	}
	return c
}

// listedSandbox is a sandbox in a list.
type listedSandbox struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	ClientID     string            `json:"clientID"`
	EnvdVersion  string            `json:"envdVersion"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	State        string            `json:"state"`
	Metadata     map[string]string `json:"metadata"`
	VolumeMounts []struct{}        `json:"volumeMounts"`
}

// stateRunning is the only state that a sandbox can be in here and be there.
const stateRunning = "running"

func listed(s *brig.Sandbox) listedSandbox {
	template := s.Spec.Labels[labelTemplate]
	return listedSandbox{
		SandboxID: string(s.ID), TemplateID: template, Alias: template, ClientID: clientID, EnvdVersion: envdVersion,
		StartedAt: s.Created.UTC(), EndAt: s.Expires.UTC(), CPUCount: cpus(s.Spec.Limits),
		MemoryMB: s.Spec.Limits.Memory / brig.MiB, DiskSizeMB: s.Spec.Limits.Disk / brig.MiB,
		State: stateRunning, Metadata: metadata(s.Spec.Labels), VolumeMounts: []struct{}{},
	}
}

// cpus counts processors as E2B does: there is no part of one.
func cpus(l brig.Limits) int { return max(1, int(math.Ceil(l.CPUs))) }

// detailedSandbox is all that is told of a sandbox.
type detailedSandbox struct {
	listedSandbox
	EnvdAccessToken     string    `json:"envdAccessToken"`
	Domain              *string   `json:"domain"`
	AllowInternetAccess bool      `json:"allowInternetAccess"`
	Network             *network  `json:"network,omitempty"`
	Lifecycle           lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// find returns a sandbox of the caller's tenant that runs and that this door
// made. To E2B's clients one that has ended is not there.
func (d *Door) find(r *http.Request) (*brig.Sandbox, error) {
	id, err := parseID(param(r, "id"))
	if err != nil {
		return nil, err
	}
	s, err := d.lookUp(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errNoSandbox(id)
	}
	return s, nil
}

// lookUp is find for an actor; it returns nil where there is none.
func (d *Door) lookUp(ctx context.Context, id string) (*brig.Sandbox, error) {
	s, err := d.Service.Get(ctx, id)
	if brig.KindOf(err) == brig.NotFound {
		d.forget(id)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The Service takes names as well; E2B has none.
	if string(s.ID) != id || !isMade(s) {
		return nil, nil
	}
	if s.State != brig.Running {
		d.forget(id)
		return nil, nil
	}
	d.known.add(id)
	return s, nil
}

func (d *Door) forget(id string) {
	d.known.remove(id)
	d.contexts.forget(id)
}

func errNoSandbox(id string) error {
	return brig.Errorf(brig.NotFound, "Sandbox %q doesn't exist or you don't have access to it", id)
}

// ended makes NotFound of what an operation says on a sandbox that ended just
// now.
func ended(id brig.ID, err error) error {
	switch brig.KindOf(err) {
	case brig.FailedPrecondition, brig.NotFound:
		return errNoSandbox(string(id))
	}
	return err
}

func (d *Door) get(w http.ResponseWriter, r *http.Request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	c := d.connected(r.Context(), s)
	d.write(w, r, http.StatusOK, detailedSandbox{
		listedSandbox: listed(s), EnvdAccessToken: c.EnvdAccessToken, Domain: c.Domain,
		AllowInternetAccess: mayConnect(s.Spec.Egress), Network: networkOf(s), Lifecycle: lifecycle{OnTimeout: "kill"},
	})
	return nil
}

func (d *Door) remove(w http.ResponseWriter, r *http.Request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if err := d.end(r.Context(), s); err != nil {
		return err
	}
	none(w)
	return nil
}

func (d *Door) end(ctx context.Context, s *brig.Sandbox) error {
	err := d.Service.Remove(ctx, string(s.ID))
	if err != nil {
		return ended(s.ID, err)
	}
	d.forget(string(s.ID))
	return nil
}
