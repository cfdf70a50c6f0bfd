package wire

import "github.com/brig-run/brig"

// ErrorAnswer is the body of every answer that is not a success.
type ErrorAnswer struct {
	Error Error `json:"error"`
}

// Error says what went wrong. Only Message and Hint are for people.
type Error struct {
	Code    string `json:"code" doc:"stable code of the kind" example:"SB010"`
	Kind    string `json:"kind" doc:"what sort of error this is" example:"invalid_argument"`
	Message string `json:"message" doc:"what is wrong"`
	Field   string `json:"field,omitempty" doc:"the field of the request that is at fault" example:"limits.memory"`
	Hint    string `json:"hint,omitempty" doc:"what to do about it"`
	// Fields has all that is wrong with a configuration.
	Fields []brig.FieldError `json:"fields,omitempty" doc:"everything that is wrong, where more than one field is"`
}
