// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/suite/spec"
)

// Lab is what a lab or a run has, of what only some specs need.
type Lab struct {
	Enforcer bool // of network policies
	SCTP     bool // sockets of the kernel
	DualIP   bool // both IP families
	Slow     bool // time for specs that take more than 10 minutes
	// KubeProxy says that the proxier is Kubernetes' own.
	KubeProxy bool
	// SourceAddress says that the proxier declares spec.SourceAddress.
	SourceAddress bool
}

// KernelHasSCTP reports whether programs can open sockets of SCTP. The kernel loads its module if it has one.
func KernelHasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// obstacle keeps specs from running.
type obstacle struct {
	pattern *regexp.Regexp // of names of specs
	reason  string
	cause   spec.Cause
	// missing reports whether the lab lacks what the specs need; nil means that every lab lacks it.
	missing func(Lab) bool
}

func always(pattern, reason string) obstacle {
	return obstacle{pattern: regexp.MustCompile(pattern), reason: reason, cause: spec.NotRun}
}

func unless(pattern, reason string, cause spec.Cause, missing func(Lab) bool) obstacle {
	return obstacle{regexp.MustCompile(pattern), reason, cause, missing}
}

// obstacles are all reasons for which specs do not run. The first that matches a spec and applies to a lab counts.
var obstacles = []obstacle{
	always(`\[Feature:Networking-(IPv4|IPv6|DNS)\]`, "it needs the Internet"),
	always(`recreate its iptables rules if they are deleted`, "it logs in to nodes with SSH"),
	always(`kube-proxy migration`, "it changes a cluster of GCE by scripts of GCE"),
	always(`\[Provider:GCE\]`, "it asks the DNS of GCE"),
	always(`^DNS configMap nameserver`, "it changes the settings of CoreDNS; the DNS of a lab is viplab's own"),
	always(`work after restarting (kube-proxy|apiserver)`, "it deletes the pods of Kubernetes' own programs; "+
		"those of a lab are processes"),
	always(`\[Feature:Networking-Performance\]`, "it measures bandwidth, of which namespaces of one machine say nothing"),
	always(`\[Feature:PerformanceDNS\]`, "it measures a DNS with 10,000 Services"),
	unless(`disruption during rolling update`, "its 5 rolling updates take a minute for each pod: --slow", spec.NotRun,
		func(l Lab) bool { return !l.Slow }),
	unless(`check kube-proxy urls|\[Feature:KubeProxyNFAcct\]`, "it reads pages of kube-proxy on the nodes",
		spec.NotApplicable, func(l Lab) bool { return !l.KubeProxy }),
	// kube-proxy listens in the families of a Service alone (pkg/proxy/healthcheck), and the API promises no more.
	unless(`LoadBalancers ExternalTrafficPolicy: Local .*should only target nodes with endpoints`,
		"it asks for the health of an IPv4 Service at IPv6 addresses of nodes, too: --ip 4", spec.NotRun,
		func(l Lab) bool { return l.DualIP }),
	unless(`\[Feature:SCTPConnectivity\]`, "the kernel has no SCTP (make vm boots one that has)", spec.NotRun,
		func(l Lab) bool { return !l.SCTP }),
	unless(`\[Feature:NetworkPolicy\]`, "it needs an enforcer of network policies: --enforcer", spec.NotOffered,
		func(l Lab) bool { return !l.Enforcer }),
	unless(`\[Feature:NetworkPolicy\]`, "its pods connect through ClusterIPs, and the enforcer must see their "+
		"addresses; the proxier does not declare source-address", spec.NotImplemented,
		func(l Lab) bool { return !l.SourceAddress }),
	unless(`preserve source pod IP for traffic thru service cluster IP|externalTrafficPolicy=Local for type=NodePort|`+
		`NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes|`+
		`ExternalTrafficPolicy: Local .*should work from pods`,
		"it wants the address of the client at the endpoint; the proxier does not declare source-address",
		spec.NotImplemented, func(l Lab) bool { return !l.SourceAddress }),
	unless(`\[Feature:IPv6DualStack\]`, "it needs both IP families: --ip dual", spec.NotRun,
		func(l Lab) bool { return !l.DualIP }),
}

// obstacleOf returns why the lab cannot run a spec, or nil if it can.
func obstacleOf(s Spec, l Lab) *obstacle {
	for _, o := range obstacles {
		if o.pattern.MatchString(s.Name) && (o.missing == nil || o.missing(l)) {
			return &o
		}
	}
	return nil
}

// CheckObstacles returns an error for each reason that no spec matches: its pattern is out of date.
func CheckObstacles(specs []Spec) error {
	var errs []error
	for _, o := range obstacles {
		matches := func(s Spec) bool { return o.pattern.MatchString(s.Name) }
		if !anyOf(specs, matches) {
			errs = append(errs, fmt.Errorf("no spec matches %q, which stands for specs of which it is said: %s",
				o.pattern, o.reason))
		}
	}
	return errors.Join(errs...)
}

func anyOf(specs []Spec, is func(Spec) bool) bool {
	for _, s := range specs {
		if is(s) {
			return true
		}
	}
	return false
}

// Part separates the specs that a lab can run from those that it cannot, which get a result with the reason.
func (s Suite) Part(specs []Spec, l Lab, proxier string) (runnable []Spec, omitted []spec.Result) {
	for _, x := range specs {
		o := obstacleOf(x, l)
		if o == nil {
			runnable = append(runnable, x)
			continue
		}
		omitted = append(omitted, s.skip(x, proxier, o.cause, o.reason))
	}
	return runnable, omitted
}

// Skipped returns results of specs that a proxier cannot run on this machine.
func (s Suite) Skipped(specs []Spec, proxier, reason string) (results []spec.Result) {
	for _, x := range specs {
		results = append(results, s.skip(x, proxier, spec.NotRun, reason))
	}
	return results
}

func (s Suite) skip(x Spec, proxier string, cause spec.Cause, reason string) spec.Result {
	return spec.Result{Scenario: x.scenario(s.Version), Proxier: proxier, Verdict: spec.Skip, Cause: cause, Reason: reason}
}
