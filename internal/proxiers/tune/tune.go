// SPDX-License-Identifier: Apache-2.0

// Package tune changes sysctls of a node and can change them back.
package tune

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/viplab/viplab/lab/netns"
)

// Sysctls remembers what settings were before. The zero value remembers nothing.
type Sysctls struct{ before []netns.Setting }

// Set makes settings. One that the kernel does not have is left out.
func (s *Sysctls) Set(ns *netns.NS, settings ...netns.Setting) error {
	for _, want := range settings {
		old, err := ns.Sysctl(want.Key)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && old == want.Value:
			continue
		case err != nil:
			return err
		}
		if err := ns.SetSysctls(want); err != nil {
			return err
		}
		s.before = append(s.before, netns.Setting{Key: want.Key, Value: old})
	}
	return nil
}

// Restore gives all settings the values that they had.
func (s *Sysctls) Restore(ns *netns.NS) error {
	slices.Reverse(s.before)
	err := ns.SetSysctls(s.before...)
	s.before = nil
	return err
}
