package kernels

import "time"

// SendWithin changes the time in which clients must read a message.
func (d *API) SendWithin(most time.Duration) { d.sendTimeout = most }

// CloseWithin changes the time in which connections end.
func (d *API) CloseWithin(most time.Duration) { d.closeTimeout = most }
