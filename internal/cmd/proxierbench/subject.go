// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/kubeproxy"
	"github.com/viplab/viplab/suite/spec"
)

type subject struct {
	name    string
	proxier spec.Proxier
	// outside is set if it runs in a process of its own, which learns of changes by itself.
	outside bool
}

// eager is the suffix of a kube-proxy that does not pause for a second between two syncs, as it does by default.
const eager = "-0s"

func subjectNames() []string {
	names := slices.DeleteFunc(proxiers.Names(), func(name string) bool { return name == "none" })
	for _, m := range kubeproxy.Modes {
		if m != kubeproxy.Userspace { // gone from the release that is measured
			names = append(names, "kube-proxy-"+string(m), "kube-proxy-"+string(m)+eager)
		}
	}
	return names
}

// defaultSubjects returns the subjects that this machine may be able to run.
func defaultSubjects() []string {
	return slices.DeleteFunc(subjectNames(), func(name string) bool { return strings.Contains(name, "ipvs") })
}

func findSubjects(names []string) ([]subject, error) {
	out, known := make([]subject, len(names)), subjectNames()
	for i, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-proxiers: unknown %q: there are %s", name, strings.Join(known, ", "))
		}
		var err error
		if out[i], err = newSubject(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func newSubject(name string) (subject, error) {
	mode, isKubeProxy := strings.CutPrefix(strings.TrimSuffix(name, eager), "kube-proxy-")
	if !isKubeProxy {
		found, err := proxiers.Find(name)
		if err != nil {
			return subject{}, err
		}
		return subject{name: name, proxier: found[0]}, nil
	}
	var args []string
	if strings.HasSuffix(name, eager) {
		flag := "--iptables-min-sync-period=0s" // of the nftables mode, too
		if mode == string(kubeproxy.IPVS) {
			flag = "--ipvs-min-sync-period=0s"
		}
		args = append(args, flag)
	}
	p, err := kubeproxy.New(kubeproxy.Mode(mode), "", "", "", args...)
	return subject{name: name, proxier: p, outside: true}, err
}
