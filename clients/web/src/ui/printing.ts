/** Whether what is drawn is for paper: nothing can be opened there, and nothing is drawn later. */
import { createContext } from "react";

export const PaperContext = createContext(false);
