// Tables that scroll can be scrolled by keyboard.
document$.subscribe(() => setTimeout(() => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap")) part.tabIndex = 0;
}));
