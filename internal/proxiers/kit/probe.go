// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/lab/kernel"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// probed are the names of the probes that succeeded. A success stays true while viplab runs.
var (
	probing sync.Mutex
	probed  = map[string]bool{}
)

// Probe runs try in an empty namespace, with a directory for its files, unless a probe of that name has succeeded. A
// failure is not remembered: the user may fix it.
func Probe(name string, try func(ns *netns.NS, dir string) error) error {
	probing.Lock()
	defer probing.Unlock()
	if probed[name] {
		return nil
	}
	err := inEmptyNamespace(try)
	probed[name] = err == nil
	return err
}

func inEmptyNamespace(try func(ns *netns.NS, dir string) error) (err error) {
	ns, err := netns.New("probe")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	dir, err := sandbox.TempDir("probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return try(ns, dir)
}

// NeedKernel returns a *spec.UnusableError that names the first feature that the kernel lacks, nil if it has all.
func NeedKernel(ctx context.Context, features ...kernel.Feature) error {
	for _, p := range kernel.Probes() {
		if !slices.Contains(features, p.Feature) {
			continue
		}
		if found := p.Run(ctx); found.Status == kernel.Lacks {
			return &spec.UnusableError{
				Missing: "the kernel module " + found.Module,
				Cure:    fmt.Sprintf("modprobe %s, or use a kernel that has it (scripts/vm)", found.Module),
			}
		}
	}
	return nil
}

// LookUp returns the path of a program of a Debian package, or a *spec.UnusableError. It also looks where the PATH of
// an unprivileged shell does not lead.
func LookUp(program, pkg string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program, "/sbin/" + program, "/usr/local/sbin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &spec.UnusableError{Missing: "the program " + program, Cure: "apt-get install " + pkg}
}

// Sample returns a Service port that uses most of what a mechanism can program, with one endpoint, and the range of
// pods. Its addresses are reserved for documentation (RFC 5737, RFC 3849).
func Sample(f lab.Family) (*model.Port, netip.Prefix) {
	vip, pods := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("198.51.100.0/24")
	if f == lab.V6 {
		vip, pods = netip.MustParseAddr("2001:db8::1"), netip.MustParsePrefix("2001:db8:1::/64")
	}
	endpoint := []model.Endpoint{{Addr: netip.AddrPortFrom(pods.Addr().Next(), 8080), OnNode: true}}
	return &model.Port{
		ID:              model.PortID{Namespace: "probe", Name: "probe", Protocol: "TCP"},
		Number:          80,
		ClusterIP:       vip,
		NodePort:        30080,
		LoadBalancerIPs: []netip.Addr{vip.Next()},
		SourceRanges:    []netip.Prefix{pods},
		ExternalLocal:   true,
		Affinity:        time.Minute,
		HealthCheckPort: 30081,
		Cluster:         endpoint,
		Local:           endpoint,
		Anywhere:        true,
	}, pods
}

// UnservedSample returns a port of the Sample's address that has no endpoint.
func UnservedSample(f lab.Family) *model.Port {
	served, _ := Sample(f)
	return &model.Port{
		ID:     model.PortID{Namespace: "probe", Name: "unserved", Protocol: "UDP"},
		Number: 53, ClusterIP: served.ClusterIP,
	}
}
