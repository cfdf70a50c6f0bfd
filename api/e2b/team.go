package e2b

import (
	"net/http"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/observe/history"
)

// teamInterval is the interval of a team's metrics if a request does not have a start, as in E2B.
const teamInterval = 7 * 24 * time.Hour

// teams lists the only team of the key. The command line stores the key that it
// finds in the response.
func (c *controlPlane) teams(w http.ResponseWriter, r *http.Request) error {
	tenant := brig.ActorFrom(r.Context()).Tenant
	c.write(w, r, http.StatusOK, []struct {
		TeamID    string `json:"teamID"`
		Name      string `json:"name"`
		APIKey    string `json:"apiKey"`
		IsDefault bool   `json:"isDefault"`
	}{{tenant, tenant, keyOf(r), true}})
	return nil
}

// teamMetric describes the sandboxes of a team at a time.
type teamMetric struct {
	Timestamp           time.Time `json:"timestamp"`
	TimestampUnix       int64     `json:"timestampUnix"`
	ConcurrentSandboxes int       `json:"concurrentSandboxes"`
	SandboxStartRate    float64   `json:"sandboxStartRate"`
}

// maxTeamMetric is the largest value of a metric, and its time.
type maxTeamMetric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	Value         float64   `json:"value"`
}

// tallies returns the numbers of the team's sandboxes in the interval of r, and the end of the
// interval.
func (tm *telemetry) tallies(r *http.Request) (in []history.Tally, end time.Time, err error) {
	actor := brig.ActorFrom(r.Context())
	if param(r, "team") != actor.Tenant {
		return nil, end, brig.Errorf(brig.PermissionDenied, "the key does not belong to this team").
			WithHint("take the team ID that GET /teams returns")
	}
	start, end, err := interval(r.URL.Query(), time.Now().Add(-teamInterval))
	if err != nil {
		return nil, end, err
	}
	for _, t := range tm.TeamMetrics(actor.Tenant) {
		// An earlier tenant may have had the same name.
		if !t.At.Before(start) && t.At.Before(end) && !t.At.Before(actor.Founded) {
			in = append(in, t)
		}
	}
	return in, end, nil
}

func (tm *telemetry) teamMetrics(w http.ResponseWriter, r *http.Request) error {
	all, _, err := tm.tallies(r)
	if err != nil {
		return err
	}
	out := make([]teamMetric, 0, len(all))
	for _, t := range all {
		out = append(out, teamMetric{t.At.UTC(), t.At.Unix(), t.Concurrent, t.StartRate})
	}
	tm.write(w, r, http.StatusOK, out)
	return nil
}

func (tm *telemetry) maxTeamMetrics(w http.ResponseWriter, r *http.Request) error {
	all, end, err := tm.tallies(r)
	if err != nil {
		return err
	}
	value := func(t history.Tally) float64 { return float64(t.Concurrent) }
	switch r.URL.Query().Get("metric") {
	case "concurrent_sandboxes":
	case "sandbox_start_rate":
		value = func(t history.Tally) float64 { return t.MaxStartRate }
	default:
		return brig.InvalidField("metric", "give concurrent_sandboxes or sandbox_start_rate")
	}
	end = end.Add(-time.Second)
	out := maxTeamMetric{Timestamp: end.UTC(), TimestampUnix: end.Unix()}
	for _, t := range all {
		if v := value(t); v > out.Value {
			out = maxTeamMetric{t.At.UTC(), t.At.Unix(), v}
		}
	}
	tm.write(w, r, http.StatusOK, out)
	return nil
}
