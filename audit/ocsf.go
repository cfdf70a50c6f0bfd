package audit

import (
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// The OCSF class of audit lines is API Activity.
const (
	ocsfVersion  = "1.3.0"
	ocsfCategory = 6 // Application Activity
	ocsfClass    = 6003
)

// OCSF is a line in the field names of the Open Cybersecurity Schema
// Framework's class API Activity. It is meant for event collectors.
// Verification uses Line.
type OCSF struct {
	ActivityID   int            `json:"activity_id"`
	ActivityName string         `json:"activity_name"`
	CategoryUID  int            `json:"category_uid"`
	CategoryName string         `json:"category_name"`
	ClassUID     int            `json:"class_uid"`
	ClassName    string         `json:"class_name"`
	TypeUID      int            `json:"type_uid"`
	Time         int64          `json:"time"` // milliseconds
	SeverityID   int            `json:"severity_id"`
	StatusID     int            `json:"status_id"`
	Status       string         `json:"status"`
	StatusCode   string         `json:"status_code,omitempty"`
	Actor        ocsfActor      `json:"actor"`
	API          ocsfAPI        `json:"api"`
	SrcEndpoint  ocsfNamed      `json:"src_endpoint"`
	Resources    []ocsfResource `json:"resources,omitempty"`
	Metadata     ocsfMetadata   `json:"metadata"`
	Unmapped     ocsfUnmapped   `json:"unmapped"`
}

type (
	ocsfNamed struct {
		Name string `json:"name"`
	}
	ocsfActor struct {
		User ocsfNamed `json:"user"`
	}
	ocsfAPI struct {
		Operation string    `json:"operation"`
		Service   ocsfNamed `json:"service"`
	}
	ocsfResource struct {
		UID    string   `json:"uid,omitempty"`
		Name   string   `json:"name,omitempty"`
		Type   string   `json:"type"`
		Labels []string `json:"labels,omitempty"`
	}
	ocsfProduct struct {
		Name   string `json:"name"`
		Vendor string `json:"vendor_name"`
	}
	ocsfMetadata struct {
		Version   string      `json:"version"`
		Product   ocsfProduct `json:"product"`
		UID       string      `json:"uid"`
		Sequence  int64       `json:"sequence"`
		TenantUID string      `json:"tenant_uid"`
		LogName   string      `json:"log_name"`
	}
	ocsfUnmapped struct {
		Phase  string            `json:"phase"`
		Detail map[string]string `json:"detail,omitempty"`
		Prev   string            `json:"prev"`
		Hash   string            `json:"hash"`
	}
)

// FromLineOCSF returns the OCSF form of l.
func FromLineOCSF(l brig.AuditLine) OCSF {
	id, name := activityOf(l.Op)
	out := OCSF{
		ActivityID: id, ActivityName: name, CategoryUID: ocsfCategory, CategoryName: "Application Activity",
		ClassUID: ocsfClass, ClassName: "API Activity", TypeUID: ocsfClass*100 + id, Time: l.At.UnixMilli(), SeverityID: 1,
		Actor: ocsfActor{ocsfNamed{l.Actor}}, API: ocsfAPI{l.Op, ocsfNamed{"brig"}}, SrcEndpoint: ocsfNamed{"brig"},
		Metadata: ocsfMetadata{
			Version: ocsfVersion, Product: ocsfProduct{"Brig", "Brig"}, UID: l.Tenant + ":" + strconv.FormatInt(l.Seq, 10),
			Sequence: l.Seq, TenantUID: l.Tenant, LogName: "audit",
		},
		Unmapped: ocsfUnmapped{string(l.Phase), l.Detail, hex.EncodeToString(l.Prev[:]), hex.EncodeToString(l.Hash[:])},
	}
	switch {
	case l.Kind != "" || l.Detail[brig.DetailVerdict] == "denied":
		out.StatusID, out.Status, out.SeverityID = 2, "Failure", 2
		if l.Kind != "" {
			out.StatusCode = l.Kind.Code()
		}
	case l.Phase == brig.Intent:
		out.Status = "Unknown"
	default:
		out.StatusID, out.Status = 1, "Success"
	}
	if l.Sandbox != "" {
		r := ocsfResource{UID: string(l.Sandbox), Name: l.Detail[brig.DetailName], Type: "sandbox"}
		for _, k := range slices.Sorted(maps.Keys(l.Detail)) {
			if label, ok := strings.CutPrefix(k, brig.DetailLabel); ok {
				r.Labels = append(r.Labels, label+":"+l.Detail[k])
			}
		}
		out.Resources = append(out.Resources, r)
	}
	for name := range strings.SplitSeq(l.Detail[brig.DetailSecrets], ",") {
		if name != "" {
			out.Resources = append(out.Resources, ocsfResource{Name: name, Type: "secret"})
		}
	}
	return out
}

// activityOf returns the OCSF activity of an operation.
func activityOf(op string) (int, string) {
	_, verb, _ := strings.Cut(op, ".")
	switch verb {
	case "create", "import", "build", "pull", "start", "write", "mkdir", "put", "compose":
		return 1, "Create"
	case "get", "list", "read", "stat", "logs", "watch", "attach":
		return 2, "Read"
	case "extend", "move", "restart", "rotate_key":
		return 3, "Update"
	case "remove", "kill", "stop", "prune", "end":
		return 4, "Delete"
	}
	return 99, "Other"
}
