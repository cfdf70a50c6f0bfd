package e2b

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// Metric is one usage sample of a sandbox. Sizes are in bytes.
type Metric struct {
	At                  time.Time
	CPUs                int
	CPUPercent          float64 // percentage of one CPU
	Memory, MemoryCache int64
	MemoryTotal         int64
	DiskUsed, DiskTotal int64
}

// sandboxMetric is a Metric in E2B's format.
type sandboxMetric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

func (m Metric) wire() sandboxMetric {
	return sandboxMetric{
		Timestamp: m.At.UTC(), TimestampUnix: m.At.Unix(), CPUCount: m.CPUs, CPUUsedPct: m.CPUPercent,
		MemUsed: m.Memory, MemTotal: m.MemoryTotal, MemCache: m.MemoryCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}
}

// seconds returns a time that is given in seconds in a query, or otherwise if
// the parameter is missing.
func seconds(q url.Values, name string, otherwise time.Time) (time.Time, error) {
	if q.Get(name) == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < 0 {
		return otherwise, brig.InvalidField(name, "it is not a number of seconds")
	}
	return time.Unix(n, 0), nil
}

// interval returns the times start and end of a query. The end is inclusive, with a resolution of
// one second.
func interval(q url.Values, defaultStart time.Time) (start, end time.Time, err error) {
	if start, err = seconds(q, "start", defaultStart); err != nil {
		return start, end, err
	}
	if end, err = seconds(q, "end", time.Now()); err != nil {
		return start, end, err
	}
	if q.Get("start") != "" && start.After(end) {
		return start, end, brig.InvalidField("start", "it is after the end")
	}
	return start, end.Add(time.Second), nil
}

func (tm *telemetry) metrics(w http.ResponseWriter, r *http.Request) error {
	all, err := tm.usageOf(r)
	if err != nil {
		return err
	}
	start, end, err := interval(r.URL.Query(), time.Time{})
	if err != nil {
		return err
	}
	out := []sandboxMetric{}
	for _, m := range all {
		if !m.At.Before(start) && m.At.Before(end) {
			out = append(out, m.wire())
		}
	}
	tm.write(w, r, http.StatusOK, out)
	return nil
}

// usageOf returns the samples of the sandbox of r, which may have ended, as in E2B.
func (tm *telemetry) usageOf(r *http.Request) ([]Metric, error) {
	s, err := tm.finder.find(r)
	if brig.KindOf(err) == brig.NotFound {
		if ended := tm.endedUsage(r); ended != nil {
			return ended, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return tm.usage(r, s)
}

// endedUsage returns the samples of an ended sandbox, or nil if there are none that the caller may
// read. The gate no longer knows the sandbox, so a caller that is limited to some sandboxes reads
// none. A tenant does not read those of an earlier one with its name.
func (tm *telemetry) endedUsage(r *http.Request) []Metric {
	id, err := parseID(param(r, "id"))
	actor := brig.ActorFrom(r.Context())
	if err != nil || tm.EndedMetrics == nil || len(actor.Sandboxes) > 0 || actor.Authorize(brig.OpUsage) != nil {
		return nil
	}
	tenant, all := tm.EndedMetrics(id)
	if tenant != actor.Tenant || len(all) == 0 || all[0].At.Before(actor.Founded) {
		return nil
	}
	return all
}

// usage returns the samples of one sandbox.
func (tm *telemetry) usage(r *http.Request, s *brig.Sandbox) ([]Metric, error) {
	if tm.Metrics == nil {
		return nil, nil
	}
	// Earlier samples are read without the Service.
	if err := httpapi.CheckCall(r.Context(), tm.Service, string(s.ID), brig.OpUsage); err != nil {
		return nil, endedError(s.ID, err)
	}
	return tm.Metrics(r.Context(), string(s.ID))
}

func (tm *telemetry) allMetrics(w http.ResponseWriter, r *http.Request) error {
	ids := slices.DeleteFunc(strings.Split(r.URL.Query().Get("sandbox_ids"), ","), func(s string) bool { return s == "" })
	if len(ids) > maxListed {
		return brig.InvalidField("sandbox_ids", "give at most %d", maxListed)
	}
	out := map[string]sandboxMetric{}
	for _, s := range ids {
		id, err := parseID(s)
		if err != nil {
			return err
		}
		box, err := tm.finder.lookUp(r.Context(), id)
		if err != nil {
			return err
		}
		if box == nil {
			continue
		}
		all, err := tm.usage(r, box)
		if err != nil {
			return err
		}
		if len(all) > 0 {
			out[id] = all[len(all)-1].wire()
		}
	}
	tm.write(w, r, http.StatusOK, struct {
		Sandboxes map[string]sandboxMetric `json:"sandboxes"`
	}{out})
	return nil
}
