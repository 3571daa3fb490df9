// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"
	"reflect"

	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/lab"
)

// Faults returns the faults for judging cases: every misreading that can be tried on an enforcer, and faults in the
// rules that enforcers write. The cases named by a misreading are the first three whose table it changes, and each
// further one whose table no misreading before it changes.
func Faults(cases []Case) ([]faults.Fault, error) {
	var all []faults.Fault
	named, right := map[string]bool{}, make([]*oracle.Cluster, len(cases))
	for i, c := range cases {
		var err error
		if right[i], err = c.Cluster(lab.IPv4); err != nil {
			return nil, fmt.Errorf("%s: %w", c.ID, err)
		}
	}
	for _, r := range misreading.Given() {
		f := faults.Fault{Name: r.Name, Description: "The enforcer misreads policies."}
		for i, c := range cases {
			if named[c.ID] && len(f.Scenarios) >= 3 {
				continue
			}
			changed, err := c.changedBy(r, right[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.ID, err)
			}
			if changed {
				f.Scenarios, named[c.ID] = append(f.Scenarios, c.ID), true
			}
		}
		all = append(all, f)
	}
	return append(all, faults.Enforced...), nil
}

// changedBy reports whether a misreading changes the IPv4 table of the case.
func (c Case) changedBy(r misreading.Reading, right *oracle.Cluster) (bool, error) {
	want := tableOf(right, lab.V4)
	if r.Allows != nil {
		return want != tableBy(right, lab.V4, func(f oracle.Flow) bool { return r.Allows(right, f) }), nil
	}
	pods := *right
	pods.Policies = nil
	misread := c
	misread.Policies = r.Policies(&pods, forStack(c.Policies, lab.IPv4))
	if reflect.DeepEqual(misread.Policies, c.Policies) {
		return false, nil
	}
	wrong, err := misread.Cluster(lab.IPv4)
	return err == nil && want != tableOf(wrong, lab.V4), err
}
