// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateNode(n, old *corev1.Node) field.ErrorList {
	spec, path := &n.Spec, field.NewPath("spec")
	if len(spec.PodCIDRs) == 0 && spec.PodCIDR != "" {
		spec.PodCIDRs = []string{spec.PodCIDR}
	} else if spec.PodCIDR == "" && len(spec.PodCIDRs) > 0 {
		spec.PodCIDR = spec.PodCIDRs[0]
	}
	var errs field.ErrorList
	for i, cidr := range spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDR(path.Child("podCIDRs").Index(i), cidr)...)
	}
	if len(spec.PodCIDRs) > 0 && spec.PodCIDR != spec.PodCIDRs[0] {
		errs = append(errs, field.Invalid(path.Child("podCIDRs").Index(0), spec.PodCIDRs[0], "must match `podCIDR`"))
	}
	if old != nil && old.Spec.PodCIDR != "" && !slices.Equal(spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs,
			field.Forbidden(path.Child("podCIDRs"), "node updates may not change podCIDRs except from none"))
	}
	for i, t := range spec.Taints {
		at := path.Child("taints").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, oneOf(at.Child("effect"), t.Effect,
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	}
	return append(errs, validateNodeStatus(n)...)
}

func validateNodeStatus(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "addresses")
	for i, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			errs = append(errs, validateIP(path.Index(i).Child("address"), a.Address)...)
		}
		if slices.Contains(n.Status.Addresses[:i], a) {
			errs = append(errs, field.Duplicate(path.Index(i), a.Address))
		}
	}
	return errs
}

// admitPod defaults and checks a pod. A pod keeps the node it has.
func (tx *Tx) admitPod(p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	defaultPod(p)
	if old != nil && p.Spec.NodeName == "" {
		p.Spec.NodeName = old.Spec.NodeName
	}
	errs := tx.giveAccount(p, old)
	errs = append(errs, validatePodSpec(&p.Spec, path)...)
	if n := p.Spec.NodeName; n != "" {
		if _, ok := tx.s.nodes.objects[Key{"", n}]; !ok {
			errs = append(errs, field.NotFound(path.Child("nodeName"), n))
		}
	}
	if old != nil && !samePodSpec(&p.Spec, &old.Spec) {
		errs = append(errs, field.Forbidden(path, "pod updates may not change fields other than the images of "+
			"containers, `spec.activeDeadlineSeconds`, `spec.terminationGracePeriodSeconds` and `spec.tolerations`"))
	}
	return append(errs, validatePodStatus(p)...)
}

// samePodSpec compares the immutable fields of a pod. A pod without a node may get one.
func samePodSpec(spec, old *corev1.PodSpec) bool {
	c := spec.DeepCopy()
	if old.NodeName == "" {
		c.NodeName = ""
	}
	c.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	c.TerminationGracePeriodSeconds = old.TerminationGracePeriodSeconds
	c.Tolerations = old.Tolerations
	sameImages(c.InitContainers, old.InitContainers)
	sameImages(c.Containers, old.Containers)
	return equality.Semantic.DeepEqual(c, old)
}

func sameImages(list, old []corev1.Container) {
	for i := range min(len(list), len(old)) {
		list[i].Image, list[i].ImagePullPolicy = old[i].Image, old[i].ImagePullPolicy
	}
}

func validatePodStatus(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if p.Status.Phase != "" {
		errs = oneOf(path.Child("phase"), p.Status.Phase,
			corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown)
	}
	path = path.Child("podIPs")
	families := map[corev1.IPFamily]bool{}
	for i, a := range p.Status.PodIPs {
		if bad := validateIP(path.Index(i), a.IP); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		f := familyOf(netip.MustParseAddr(a.IP))
		if families[f] {
			errs = append(errs,
				field.Invalid(path.Index(i), a.IP, "may specify no more than one IP for each IP family"))
		}
		families[f] = true
	}
	return errs
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	spec, path := &d.Spec, field.NewPath("spec")
	errs := apivalidation.ValidateNonnegativeField(int64(*spec.Replicas), path.Child("replicas"))
	errs = append(errs, oneOf(path.Child("strategy", "type"), spec.Strategy.Type,
		appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType)...)
	var was *metav1.LabelSelector
	if old != nil {
		was = old.Spec.Selector
	}
	return append(errs,
		validateTemplate(KindDeployment, spec.Selector, was, &spec.Template, corev1.RestartPolicyAlways)...)
}

// validateTemplate checks a workload's template and selector. was is the selector of the object that it replaces, or
// nil. The template has one of the restart policies.
func validateTemplate(k Kind, selector, was *metav1.LabelSelector, t *corev1.PodTemplateSpec,
	policies ...corev1.RestartPolicy) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSelector(k, selector, t, path)
	template := path.Child("template")
	errs = append(errs, metav1validation.ValidateLabels(t.Labels, template.Child("metadata", "labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, template.Child("metadata", "annotations"))...)
	errs = append(errs, validatePodSpec(&t.Spec, template.Child("spec"))...)
	if p := t.Spec.RestartPolicy; !slices.Contains(policies, p) {
		errs = append(errs, field.NotSupported(template.Child("spec", "restartPolicy"), p, policies))
	}
	if was != nil && !equality.Semantic.DeepEqual(selector, was) {
		errs = append(errs, field.Invalid(path.Child("selector"), metav1.FormatLabelSelector(selector),
			fmt.Sprintf("field is immutable (it is %s)", metav1.FormatLabelSelector(was))))
	}
	return errs
}

func validateSelector(k Kind, s *metav1.LabelSelector, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	at := path.Child("selector")
	if s == nil {
		return field.ErrorList{field.Required(at, "which pods belong to the "+string(k))}
	}
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return invalid(at, s, "empty selector is invalid for "+strings.ToLower(string(k)))
	}
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || len(errs) > 0 {
		return errs
	}
	if !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), t.Labels,
			fmt.Sprintf("`selector` does not match template `labels`: it wants %s", selector)))
	}
	return errs
}

// validatePodSpec checks the parts of a pod that mean something to a network, and the mistakes people make in the rest.
func validatePodSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), "a pod has at least one container"))
	}
	errs = append(errs, oneOf(path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, checkSet(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label)...)
	errs = append(errs, checkSet(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label)...)
	volumes := map[string]bool{}
	for i, v := range spec.Volumes {
		at := path.Child("volumes").Index(i).Child("name")
		errs = append(errs, check(at, v.Name, validation.IsDNS1123Label)...)
		errs = append(errs, once(at, volumes, v.Name, v.Name)...)
	}
	names := map[string]bool{}
	for i := range spec.InitContainers {
		at := path.Child("initContainers").Index(i)
		errs = append(errs, validateContainer(&spec.InitContainers[i], at, names, volumes)...)
	}
	hostPorts := map[string]bool{}
	for i := range spec.Containers {
		at := path.Child("containers").Index(i)
		errs = append(errs, validateContainer(&spec.Containers[i], at, names, volumes)...)
		errs = append(errs, validateHostPorts(spec.Containers[i].Ports, at.Child("ports"), hostPorts)...)
	}
	return errs
}

func validateContainer(c *corev1.Container, path *field.Path, names, volumes map[string]bool) field.ErrorList {
	errs := check(path.Child("name"), c.Name, validation.IsDNS1123Label)
	errs = append(errs, once(path.Child("name"), names, c.Name, c.Name)...)
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways,
		corev1.PullIfNotPresent, corev1.PullNever)...)
	ports := map[string]bool{}
	for i, p := range c.Ports {
		at := path.Child("ports").Index(i)
		if p.Name != "" {
			errs = append(errs, check(at.Child("name"), p.Name, validation.IsValidPortName)...)
			errs = append(errs, once(at.Child("name"), ports, p.Name, p.Name)...)
		}
		errs = append(errs, validatePort(at.Child("containerPort"), p.ContainerPort)...)
		errs = append(errs, oneOf(at.Child("protocol"), p.Protocol, protocols...)...)
	}
	for i, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			errs = append(errs, field.NotFound(path.Child("volumeMounts").Index(i).Child("name"), m.Name))
		}
	}
	return errs
}

// validateHostPorts checks ports that a pod takes from its node; no two containers can have the same.
func validateHostPorts(ports []corev1.ContainerPort, path *field.Path, taken map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		at := path.Index(i).Child("hostPort")
		errs = append(errs, validatePort(at, p.HostPort)...)
		name := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		errs = append(errs, once(at, taken, name, p.HostPort)...)
	}
	return errs
}
