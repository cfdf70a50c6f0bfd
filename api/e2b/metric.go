package e2b

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Metric is what a sandbox used at one moment. Sizes are in bytes.
type Metric struct {
	At                  time.Time
	CPUs                int
	CPUPercent          float64 // of one processor
	Memory, MemoryCache int64
	MemoryTotal         int64
	DiskUsed, DiskTotal int64
}

// sandboxMetric is a Metric as E2B's clients read it.
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

// seconds reads a moment in seconds from a query.
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

func (d *Door) metrics(w http.ResponseWriter, r *http.Request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	start, err := seconds(r.URL.Query(), "start", time.Time{})
	if err != nil {
		return err
	}
	// The end counts, to the second.
	end, err := seconds(r.URL.Query(), "end", time.Now())
	if err != nil {
		return err
	}
	all, err := d.usage(r, s)
	if err != nil {
		return err
	}
	out := []sandboxMetric{}
	for _, m := range all {
		if !m.At.Before(start) && m.At.Before(end.Add(time.Second)) {
			out = append(out, m.wire())
		}
	}
	d.write(w, r, http.StatusOK, out)
	return nil
}

// usage is what is known of one sandbox.
func (d *Door) usage(r *http.Request, s *brig.Sandbox) ([]Metric, error) {
	if d.Metrics == nil {
		return nil, nil
	}
	return d.Metrics(r.Context(), string(s.ID))
}

func (d *Door) allMetrics(w http.ResponseWriter, r *http.Request) error {
	ids := slices.DeleteFunc(strings.Split(r.URL.Query().Get("sandbox_ids"), ","), func(s string) bool { return s == "" })
	if len(ids) > mostListed {
		return brig.InvalidField("sandbox_ids", "give at most %d", mostListed)
	}
	out := map[string]sandboxMetric{}
	for _, s := range ids {
		id, err := parseID(s)
		if err != nil {
			return err
		}
		box, err := d.lookUp(r.Context(), id)
		if err != nil {
			return err
		}
		if box == nil {
			continue
		}
		all, err := d.usage(r, box)
		if err != nil {
			return err
		}
		if len(all) > 0 {
			out[id] = all[len(all)-1].wire()
		}
	}
	d.write(w, r, http.StatusOK, struct {
		Sandboxes map[string]sandboxMetric `json:"sandboxes"`
	}{out})
	return nil
}
