// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/viplab/viplab/lab/netns"
)

// sysctls changes sysctls of a node and remembers their former values.
type sysctls struct{ before []netns.Setting }

// set changes settings. It skips those that the kernel does not have.
func (s *sysctls) set(ns *netns.NS, settings ...netns.Setting) error {
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

// restore resets all settings to their former values.
func (s *sysctls) restore(ns *netns.NS) error {
	slices.Reverse(s.before)
	err := ns.SetSysctls(s.before...)
	s.before = nil
	return err
}
