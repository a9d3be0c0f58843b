// A table that is wider than its place says so while there is more to the right.
for (const place of document.querySelectorAll(".scroll")) {
  const look = () => place.classList.toggle("more", place.scrollLeft + place.clientWidth < place.scrollWidth - 2);
  place.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(place);
  look();
}
