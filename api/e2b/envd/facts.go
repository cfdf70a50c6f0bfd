package envd

import (
	"math"
	"net/http"

	"github.com/brig-run/brig"
)

// envs answers GET /envs.
func (e *Envd) envs(w http.ResponseWriter, r *http.Request) {
	env := callOf(r.Context()).box.Env
	if env == nil {
		env = map[string]string{}
	}
	answer(w, http.StatusOK, env)
}

// measure answers GET /metrics.
func (e *Envd) measure(w http.ResponseWriter, r *http.Request) {
	if e.metrics == nil {
		e.fail(w, r, "", brig.Errorf(brig.Unimplemented, "there are no metrics"))
		return
	}
	m, err := e.metrics(r.Context(), callOf(r.Context()).box.ID)
	if err != nil {
		e.fail(w, r, "", err)
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"ts": m.Time.Unix(), "cpu_count": int(math.Ceil(m.CPUs)), "cpu_used_pct": m.CPUPercent,
		"mem_total": m.MemoryMax, "mem_used": m.Memory, "mem_cache": m.MemoryCache,
		"mem_total_mib": m.MemoryMax / brig.MiB, "mem_used_mib": m.Memory / brig.MiB,
		"disk_used": m.Disk, "disk_total": m.DiskMax,
	})
}
