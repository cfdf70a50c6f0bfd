package observe

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// Host exports the resource usage of the host.
type Host struct {
	// Dir is the data folder, whose file system is measured.
	Dir string
	// Meminfo is the kernel's memory information file. The default is /proc/meminfo.
	Meminfo string

	mu         sync.Mutex // guards the fields below
	busy, idle float64    // seconds of all CPUs at the last measurement
	measuredAt time.Time
	used       float64
}

var (
	cpuDesc    = prometheus.NewDesc("brig_host_cpu_seconds_total", "Processor time of the machine, busy or idle.", []string{"mode"}, nil)
	cpuUsed    = prometheus.NewDesc("brig_host_cpu_used_ratio", "Share of the processor time that was busy since the last scrape, over at least a second.", nil, nil)
	memoryDesc = prometheus.NewDesc("brig_host_memory_bytes", "Memory of the machine, total and available.", []string{"what"}, nil)
	memoryUsed = prometheus.NewDesc("brig_host_memory_used_ratio", "Share of the machine's memory that is not available.", nil, nil)
	diskDesc   = prometheus.NewDesc("brig_host_disk_bytes", "Size of the data folder's file system, total and free.", []string{"what"}, nil)
	diskUsed   = prometheus.NewDesc("brig_host_disk_used_ratio", "Share of the data folder's file system that is used.", nil, nil)
)

// Describe implements prometheus.Collector.
func (h *Host) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{cpuDesc, cpuUsed, memoryDesc, memoryUsed, diskDesc, diskUsed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (h *Host) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if busy, idle, err := readCPUTimes("/proc/stat"); err == nil {
		ch <- prometheus.MustNewConstMetric(cpuDesc, prometheus.CounterValue, busy, "busy")
		ch <- prometheus.MustNewConstMetric(cpuDesc, prometheus.CounterValue, idle, "idle")
		gauge(cpuUsed, h.updateBusyShare(busy, idle, time.Now()))
	} else {
		ch <- prometheus.NewInvalidMetric(cpuDesc, err)
	}
	if total, free, err := readMemory(cmp.Or(h.Meminfo, "/proc/meminfo")); err == nil {
		gauge(memoryDesc, total, "total")
		gauge(memoryDesc, free, "available")
		gauge(memoryUsed, 1-free/total)
	} else {
		ch <- prometheus.NewInvalidMetric(memoryDesc, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(h.Dir, &st); err != nil || st.Blocks == 0 {
		ch <- prometheus.NewInvalidMetric(diskDesc, fmt.Errorf("look at the data folder: %w", err))
		return
	}
	total, free := float64(st.Blocks)*float64(st.Bsize), float64(st.Bavail)*float64(st.Bsize)
	gauge(diskDesc, total, "total")
	gauge(diskDesc, free, "available")
	gauge(diskUsed, 1-free/total)
}

// updateBusyShare updates and returns the busy share of the time since the last measurement.
func (h *Host) updateBusyShare(busy, idle float64, now time.Time) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.measuredAt) < time.Second {
		return h.used
	}
	if all := busy - h.busy + idle - h.idle; all > 0 {
		h.used = (busy - h.busy) / all
	}
	h.busy, h.idle, h.measuredAt = busy, idle, now
	return h.used
}

// Memory returns the used share of the host's memory.
func (h *Host) Memory() ([]brig.Sample, error) {
	total, free, err := readMemory(cmp.Or(h.Meminfo, "/proc/meminfo"))
	if err != nil {
		return nil, err
	}
	return []brig.Sample{{Value: 1 - free/total, Count: 1}}, nil
}

// tick is the unit of /proc/stat, which is the same on all Linux systems.
const tick = 100

// readCPUTimes reads the busy and idle time of all CPUs, in seconds.
func readCPUTimes(file string) (busy, idle float64, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("%s begins with %.40q", file, line)
	}
	// user nice system idle iowait irq softirq steal; guest time is included in
	// user.
	for i, w := range fields[1:min(len(fields), 9)] {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read %s: %w", file, err)
		}
		if i == 3 || i == 4 {
			idle += v / tick
		} else {
			busy += v / tick
		}
	}
	return busy, idle, nil
}

// readMemory reads the total and the available memory of the host.
func readMemory(file string) (total, free float64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		v, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = v * brig.KiB
		case "MemAvailable:":
			free = v * brig.KiB
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("%s does not say how much memory there is", file)
	}
	return total, free, nil
}
