package brig

import "time"

// Setting is a value that an administrator changes while a server runs.
type Setting struct {
	// Name is found exactly: "sandbox.e2b" is not "sandbox.e2b2".
	Name string
	// Type is "string" or "json".
	Type string
	// Value is of any length.
	Value   []byte
	Updated time.Time
}

// The names of settings.
const (
	// SettingProvider is the active provider's id.
	SettingProvider = "sandbox.provider_type"
	// settingConfig begins those of providers, by id.
	settingConfig = "sandbox."
	// settingTerms begins those of how providers are used.
	settingTerms = "terms."
	// settingRouting begins those of where sandboxes go, by tenant.
	settingRouting = "routing."
)

// SettingConfig is the name of a provider's configuration.
func SettingConfig(id string) string { return settingConfig + id }

// SettingTerms is the name of a provider's Terms.
func SettingTerms(id string) string { return settingTerms + id }

// SettingRouting is the name of a tenant's Routing, of everybody's for "".
func SettingRouting(tenant string) string { return settingRouting + tenant }
